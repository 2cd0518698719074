"""The TensorFlow operations against the NumPy ones and Pillow, in graphs and in tf.data, and the draw of policies."""

import numpy as np
import pytest
import tensorflow as tf

from augmentation import image_ops, randaugment, randaugment_tf
from augmentation.randaugment import OP_NAMES, OPS, Policies
from augmentation.randaugment_tf import AUGMENTATIONS, apply_op, apply_policies, draw_policies
from tests import pillow_reference

LEVELS = range(randaugment.NUM_LEVELS)
SIGNED = [name for name, op in OPS.items() if op.signed]


def create_photos(num_images, height=32, width=32, seed=7):
    """Noise on a colour gradient, with a different range of colours in each image."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width]
    gradient = np.stack([rows / height, columns / width, 1 - rows / height], axis=-1)
    noise = rng.normal(0, 0.1, (num_images, height, width, 3))
    low, high = rng.uniform(0, 120, (num_images, 1, 1, 3)), rng.uniform(130, 255, (num_images, 1, 1, 3))
    return np.clip(low + (gradient + noise) * (high - low), 0, 255).astype(np.uint8)


def create_images(height, width):
    """RGBA images: photos, noise, constants, few colours; some with the holes that Rotate and Cutout leave."""
    rng = np.random.default_rng(height * 100 + width)
    noise = rng.integers(0, 256, (2, height, width, 3), np.uint8)
    constant = np.full_like(noise[0], (17, 200, 99))
    black_and_white = [np.zeros_like(constant), np.full_like(constant, 255)]
    two_valued = rng.choice(np.array([40, 213], np.uint8), constant.shape)
    mostly_white = np.where(rng.random(constant.shape) < 0.1, 250, 255).astype(np.uint8)
    photos = create_photos(2, height, width)
    images = image_ops.add_alpha(np.stack([*photos, *noise, constant, *black_and_white, two_valued, mostly_white]))
    cut = image_ops.cutout(images[:4], 4, np.tile([height // 3, width // 2], (4, 1)))
    return np.concatenate([images, cut, image_ops.rotate(images[:3], 24)])


def create_cases(height, width):
    """Every image at every level with both signs, and a centre each: the arguments of apply_op besides the name."""
    images = create_images(height, width)
    levels, negates, indices = np.meshgrid(LEVELS, [False, True], range(len(images)), indexing="ij")
    centers = np.random.default_rng(0).integers((height, width), size=(levels.size, 2))
    return images[indices.ravel()], levels.ravel(), negates.ravel(), centers


def apply_with_numpy(images, name, levels, negates, centers):
    scale = min(images.shape[1:3]) / 32
    results = np.empty_like(images)
    for level in LEVELS:
        for negate in (False, True):
            group = (levels == level) & (negates == negate)
            results[group] = randaugment._apply(images[group], name, level, negate, centers[group], scale)
    return results


def in_dataset(function, *arguments):
    """One call of `function` in a map of tf.data."""
    return next(iter(tf.data.Dataset.from_tensors(arguments).map(function)))


def in_graph(function, *arguments):
    return tf.function(function)(*arguments)


def eagerly(function, *arguments):
    return function(*arguments)


@pytest.mark.parametrize("run", [in_dataset, in_graph, eagerly])
@pytest.mark.parametrize("size", [(32, 32), (24, 40), (7, 5)], ids=str)
def test_every_op_equals_numpy_at_every_level_and_sign(size, run):
    cases = create_cases(*size)
    results = run(lambda images, *rest: {name: apply_op(images, name, *rest) for name in OPS}, *map(tf.constant, cases))
    for name, result in results.items():
        np.testing.assert_array_equal(result, apply_with_numpy(cases[0], name, *cases[1:]), err_msg=name)


@pytest.mark.parametrize("size", [(2, 9), (3, 3), (1, 1)], ids=str)
def test_images_of_a_few_pixels_equal_numpy(size):
    cases = create_cases(*size)
    for name in OPS:
        expected = apply_with_numpy(cases[0], name, *cases[1:])
        np.testing.assert_array_equal(apply_op(cases[0], name, *cases[1:]), expected, err_msg=name)


@pytest.mark.parametrize("size", [(32, 32), (40, 56)], ids=str)
def test_every_op_equals_pillow(size):
    images, levels, negates, centers = create_cases(*size)
    drawn = np.flatnonzero((levels > 0) & (levels < 10))[::7]  # Pillow refuses to keep no bits, as at level 10
    cases = images[drawn], levels[drawn], negates[drawn], centers[drawn]
    arguments = list(zip(cases[0], *(array.tolist() for array in cases[1:])))
    for name in OPS:
        result = apply_op(cases[0], name, *cases[1:])
        expected = [pillow_reference.apply_op(image, name, *rest, min(size) / 32) for image, *rest in arguments]
        np.testing.assert_array_equal(result, expected, err_msg=name)


@pytest.mark.parametrize("run", [in_dataset, in_graph, eagerly])
def test_blend_equals_numpy_for_every_pair_of_colours(run):
    colors = np.arange(256, dtype=np.uint8)
    degenerate, image = (
        np.repeat(plane[np.newaxis, ..., np.newaxis], 4, axis=-1) for plane in np.meshgrid(colors, colors)
    )
    factors = np.array([OPS["Color"].argument(level, 1.0) for level in LEVELS], np.float32)
    blended = run(
        lambda degenerate, words, factors: randaugment_tf._blend(degenerate, tf.repeat(words, len(LEVELS), 0), factors),
        tf.constant(degenerate.reshape(1, 256, 1024)),
        tf.bitcast(image, tf.int32),
        tf.constant(factors),
    )
    for factor, result in zip(factors, tf.bitcast(blended, tf.uint8)):
        np.testing.assert_array_equal(result, image_ops._blend(degenerate, image, factor)[0])


@pytest.mark.parametrize("run", [in_dataset, in_graph, eagerly])
@pytest.mark.parametrize("size, num_images", [(32, 600), (64, 200)])
def test_whole_policies_equal_numpy(size, num_images, run):
    images = create_photos(num_images, size, size)
    policies = randaugment.draw_policies(num_images, size, size, np.random.default_rng(3))
    result = run(lambda images, *policies: apply_policies(images, Policies(*policies)), images, *policies)
    np.testing.assert_array_equal(result, randaugment.apply_policies(images, policies))


def test_whole_policies_equal_pillow():
    images = create_photos(200, 24, 40)
    policies = randaugment.draw_policies(200, 24, 40, np.random.default_rng(4), ops_per_image=4)
    np.testing.assert_array_equal(apply_policies(images, policies), pillow_reference.apply_policies(images, policies))


def test_randaugment_applies_the_policies_of_its_seed():
    images = create_photos(300)
    policies = Policies(*(array.numpy() for array in draw_policies(300, 32, 32, [3, 4])))
    result = AUGMENTATIONS["randaugment"](images, [3, 4])
    np.testing.assert_array_equal(result, randaugment.apply_policies(images, policies))


def augment_in_dataset(name, images, batch_size, num_parallel_calls):
    dataset = tf.data.Dataset.from_tensor_slices(images).batch(batch_size).enumerate()
    dataset = dataset.map(lambda step, batch: AUGMENTATIONS[name](batch, [7, step]), num_parallel_calls)
    return [batch.numpy() for batch in dataset]


@pytest.mark.slow
@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_neither_parallel_calls_nor_the_global_seed_change_the_result(name):
    images = create_photos(200)
    tf.random.set_seed(1)
    expected = [AUGMENTATIONS[name](images[start : start + 64], [7, start // 64]) for start in range(0, 200, 64)]
    for global_seed, num_parallel_calls in [(2, None), (3, 4)]:
        tf.random.set_seed(global_seed)
        results = augment_in_dataset(name, images, 64, num_parallel_calls)
        assert [len(batch) for batch in results] == [64, 64, 64, 8]
        for result, batch in zip(results, expected):
            np.testing.assert_array_equal(result, batch)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_the_same_seed_gives_the_same_images_and_another_seed_others(name):
    images, augment = create_photos(64), AUGMENTATIONS[name]
    first = augment(images, [3, 7])
    np.testing.assert_array_equal(first, augment(images, tf.constant([3, 7], tf.int64)))
    for seed in ([3, 8], [4, 7], [7, 3]):
        assert (name == "crop_flip") == np.array_equal(first, augment(images, seed))


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_results_are_uint8_of_known_shape_with_an_alpha_of_one_bit(name):
    images = tf.data.Dataset.from_tensor_slices(create_photos(30, 24, 40))
    for drop_remainder, batch_size in [(True, 15), (False, None)]:
        dataset = images.batch(15, drop_remainder).map(lambda batch: AUGMENTATIONS[name](batch, [0, 1]))
        assert dataset.element_spec == tf.TensorSpec([batch_size, 24, 40, 4], tf.uint8)
    alpha = np.concatenate([batch[..., 3] for batch in dataset])
    assert np.isin(alpha, [0, 255]).all() and (alpha == 0).any() == (name != "crop_flip")


def test_augmentations_are_those_of_numpy():
    assert list(AUGMENTATIONS) == list(randaugment.AUGMENTATIONS)


def test_policies_are_uniform_over_ops_levels_and_signs_and_half_of_them_fire():
    policies = Policies(*(array.numpy() for array in draw_policies(50_000, 32, 32, [0, 0])))
    for stage in range(2):
        kinds = policies.op_indices[:, stage] * 9 + policies.levels[:, stage] - 1
        counts = np.bincount(kinds, minlength=15 * 9)
        assert counts.shape == (135,)
        assert np.abs(counts / 50_000 * 135 - 1).max() < 0.25  # four standard deviations are 0.21
        assert abs(policies.fires[:, stage].mean() - 0.5) < 0.01
    signed = np.isin(np.array(OP_NAMES)[policies.op_indices], SIGNED)
    assert abs(policies.negates[signed].mean() - 0.5) < 0.015
    assert not policies.negates[~signed].any()


def test_all_that_is_drawn_is_independent():
    policies = draw_policies(50_000, 32, 32, [1, 0])._asdict()
    fires = policies["fires"].numpy()
    del policies["negates"]  # only ever true for some operations
    arrays = [tf.cast(array, tf.float32) for array in policies.values()]
    # Once image by image, and once in the order in which numbers come out of the generator.
    by_image = np.concatenate([tf.reshape(array, [50_000, -1]) for array in arrays], axis=1)
    by_draw = np.stack(
        [tf.reshape(array[..., 0] if array.shape[-1] == 2 else array, [-1])[:50_000] for array in arrays]
    )
    for columns in (by_image.T, by_draw):
        correlations = np.corrcoef(columns) - np.eye(len(columns))
        assert np.abs(correlations).max() < 0.025  # five standard deviations are 0.022
    assert abs((~fires).all(axis=1).mean() - 0.25) < 0.01


def test_centres_are_uniform_over_the_pixels_of_the_image():
    policies = draw_policies(40_000, 24, 40, [2, 0])
    for centers in [policies.final_centers, policies.op_centers[:, 0], policies.op_centers[:, 1]]:
        for axis, length in enumerate([24, 40]):
            counts = np.bincount(centers[:, axis])
            assert len(counts) == length
            assert np.abs(counts / 40_000 * length - 1).max() < 0.15


def test_only_the_named_ops_are_drawn():
    ops = ("Rotate", "Invert", "Brightness")
    policies = draw_policies(9_000, 32, 32, [0, 0], ops_per_image=3, ops=ops)
    names, counts = np.unique(np.array(OP_NAMES)[policies.op_indices], return_counts=True)
    assert sorted(names) == sorted(ops) and np.abs(counts / 9_000 - 1).max() < 0.05
    assert set(np.array(OP_NAMES)[policies.op_indices[policies.negates]]) == {"Rotate"}


def test_with_invert_alone_half_of_the_images_are_inverted():
    images = create_photos(400)
    result = randaugment_tf.randaugment(images, [5, 5], ops_per_image=1, ops=("Invert",)).numpy()
    visible = result[..., 3:] == 255
    kept, inverted = (((result[..., :3] == other) | ~visible).all(axis=(1, 2, 3)) for other in (images, 255 - images))
    assert (kept ^ inverted).all() and abs(inverted.mean() - 0.5) < 0.1


@pytest.mark.parametrize("name", OPS)
def test_a_batch_that_drew_one_op_only_leaves_the_other_groups_empty(name):
    images = create_photos(5)
    policies = randaugment.draw_policies(5, 32, 32, np.random.default_rng(0), ops_per_image=1)
    policies = policies._replace(op_indices=np.full((5, 1), OP_NAMES.index(name)), fires=np.full((5, 1), True))
    np.testing.assert_array_equal(apply_policies(images, policies), randaugment.apply_policies(images, policies))


@pytest.mark.parametrize("run", [in_graph, eagerly])
@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_an_empty_batch_stays_empty(name, run):
    result = run(lambda images: AUGMENTATIONS[name](images, [0, 0]), np.zeros((0, 32, 32, 3), np.uint8))
    assert result.shape == (0, 32, 32, 4)


def test_without_ops_only_the_final_cutout_remains():
    images = create_photos(50)
    result = randaugment_tf.randaugment(images, [0, 0], ops_per_image=0).numpy()
    cut = result[..., 3] == 0
    assert (result[cut] == 0).all() and cut.any(axis=(1, 2)).all()
    np.testing.assert_array_equal(result[~cut][:, :3], images[~cut])


def test_cutout_clears_half_the_side_around_a_centre_and_nothing_else():
    images = create_photos(2_000)
    result = AUGMENTATIONS["cutout"](images, [0, 0]).numpy()
    cut = result[..., 3] == 0
    np.testing.assert_array_equal(result[~cut][:, :3], images[~cut])
    assert (result[cut] == 0).all()
    heights, widths = cut.any(axis=2).sum(axis=1), cut.any(axis=1).sum(axis=1)
    np.testing.assert_array_equal(cut.sum(axis=(1, 2)), heights * widths)
    for lengths in [heights, widths]:
        assert (lengths.min(), lengths.max()) == (8, 16)


def test_crop_flip_adds_only_an_opaque_alpha_channel():
    images = create_photos(5, 24, 40)
    np.testing.assert_array_equal(AUGMENTATIONS["crop_flip"](images, [0, 0]), image_ops.add_alpha(images))


@pytest.mark.parametrize("ops", [("Rotate", "Blur"), (), ("Rotate", "Rotate")])
def test_unknown_repeated_or_no_ops_are_explained(ops):
    with pytest.raises(ValueError, match="ops must be different names among Invert, Cutout, .*, Brightness; got ops="):
        randaugment_tf.randaugment(create_photos(1), [0, 0], ops=ops)


def test_apply_op_explains_an_unknown_name_and_refuses_levels_that_do_not_exist():
    arguments = [False], [[0, 0]]
    with pytest.raises(ValueError, match="unknown operation name='Blur'; choose from Invert, Cutout"):
        apply_op(create_images(8, 8)[:1], "Blur", [3], *arguments)
    for level in (-1, 11):
        with pytest.raises(tf.errors.InvalidArgumentError, match="does not index into param"):
            apply_op(create_images(8, 8)[:1], "Solarize", [level], *arguments)


@pytest.mark.parametrize("name", AUGMENTATIONS)
@pytest.mark.parametrize("shape, dtype", [((2, 8, 8, 3), np.float32), ((8, 8, 3), np.uint8), ((2, 8, 8, 4), np.uint8)])
def test_augmentations_explain_wrong_batches(name, shape, dtype):
    with pytest.raises(ValueError, match=r"images must be uint8 \[N, height, width, 3\] .*got dtype="):
        AUGMENTATIONS[name](np.zeros(shape, dtype), [0, 0])


@pytest.mark.parametrize("shape", [None, [None, None, 8, 3]])
def test_an_unknown_height_is_explained(shape):
    with pytest.raises(ValueError, match="with known height and width, got dtype=uint8, shape=.*unknown|None"):
        tf.function(lambda images: AUGMENTATIONS["cutout"](images, [0, 0])).get_concrete_function(
            tf.TensorSpec(shape, tf.uint8)
        )
