"""The table of operations, the draw of policies, and whole batches against Pillow."""

import numpy as np
import pytest

from augmentation import randaugment as randaugment_module
from augmentation.randaugment import (
    AUGMENTATIONS,
    OP_NAMES,
    OPS,
    apply_op,
    choose_ops,
    choose_options,
    draw_policies,
    randaugment,
)
from tests import pillow_reference

SIGNED = ["ShearX", "TranslateX", "TranslateY", "ShearY", "Rotate"]


def create_photos(num_images, height=32, width=32):
    """Noise on a colour gradient, with a different range of colours in each image."""
    rng = np.random.default_rng(7)
    rows, columns = np.mgrid[:height, :width]
    gradient = np.stack([rows / height, columns / width, 1 - rows / height], axis=-1)
    noise = rng.normal(0, 0.1, (num_images, height, width, 3))
    low, high = rng.uniform(0, 120, (num_images, 1, 1, 3)), rng.uniform(130, 255, (num_images, 1, 1, 3))
    return np.clip(low + (gradient + noise) * (high - low), 0, 255).astype(np.uint8)


def test_ops_are_those_of_the_original_release_in_its_order():
    assert list(OPS) == [
        "Invert",
        "Cutout",
        "Sharpness",
        "AutoContrast",
        "Posterize",
        "ShearX",
        "TranslateX",
        "TranslateY",
        "ShearY",
        "Rotate",
        "Equalize",
        "Contrast",
        "Color",
        "Solarize",
        "Brightness",
    ]
    assert [name for name, op in OPS.items() if op.signed] == SIGNED
    assert [name for name, op in OPS.items() if op.argument is None] == ["Invert", "AutoContrast", "Equalize"]


@pytest.mark.parametrize(
    "name, expected",
    [
        ("Rotate", [3, 6, 9, 12, 15, 18, 21, 24, 27]),
        ("ShearX", [0.03, 0.06, 0.09, 0.12, 0.15, 0.18, 0.21, 0.24, 0.27]),
        ("ShearY", [0.03, 0.06, 0.09, 0.12, 0.15, 0.18, 0.21, 0.24, 0.27]),
        ("TranslateX", [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("TranslateY", [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("Posterize", [4, 4, 3, 3, 2, 2, 2, 1, 1]),
        ("Solarize", [231, 205, 180, 154, 128, 103, 77, 52, 26]),
        ("Cutout", [2, 4, 6, 8, 10, 12, 14, 16, 18]),
        ("Color", [0.28, 0.46, 0.64, 0.82, 1.0, 1.18, 1.36, 1.54, 1.72]),
        ("Contrast", [0.28, 0.46, 0.64, 0.82, 1.0, 1.18, 1.36, 1.54, 1.72]),
        ("Brightness", [0.28, 0.46, 0.64, 0.82, 1.0, 1.18, 1.36, 1.54, 1.72]),
        ("Sharpness", [0.28, 0.46, 0.64, 0.82, 1.0, 1.18, 1.36, 1.54, 1.72]),
    ],
)
def test_levels_map_to_the_arguments_of_the_original_release(name, expected):
    assert [OPS[name].argument(level, 1.0) for level in range(1, 10)] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    "size, translations, cutouts",
    [
        (64, [2, 4, 6, 8, 10, 12, 14, 16, 18], [4, 8, 12, 16, 20, 24, 28, 32, 36]),
        (28, [0, 1, 2, 3, 4, 5, 6, 7, 7], [1, 3, 5, 7, 8, 10, 12, 14, 15]),
    ],
)
def test_only_lengths_in_pixels_grow_with_the_image(size, translations, cutouts):
    ops = {name: op for name, op in OPS.items() if op.argument}
    scaled = {name: [op.argument(level, size / 32) for level in range(1, 10)] for name, op in ops.items()}
    assert scaled.pop("TranslateX") == scaled.pop("TranslateY") == translations
    assert scaled.pop("Cutout") == cutouts
    for name, arguments in scaled.items():
        assert arguments == [OPS[name].argument(level, 1.0) for level in range(1, 10)]


@pytest.mark.parametrize("size", [(32, 32), (24, 40), (7, 5), (64, 64)], ids=str)
def test_a_batch_equals_pillow_image_by_image_under_the_same_policies(size):
    images = create_photos(600 if size == (32, 32) else 200, *size)
    policies = draw_policies(len(images), *size, np.random.default_rng(3))
    result = randaugment(images, np.random.default_rng(3))
    assert result.dtype == np.uint8
    np.testing.assert_array_equal(result, pillow_reference.apply_policies(images, policies))


def test_four_ops_per_image_equal_pillow_too():
    images = create_photos(200)
    policies = draw_policies(200, 32, 32, np.random.default_rng(4), ops_per_image=4)
    result = randaugment(images, np.random.default_rng(4), ops_per_image=4)
    np.testing.assert_array_equal(result, pillow_reference.apply_policies(images, policies))


def test_only_the_named_ops_are_drawn():
    ops = ("Rotate", "Invert", "Brightness")
    policies = draw_policies(9_000, 32, 32, np.random.default_rng(0), ops_per_image=3, ops=ops)
    names, counts = np.unique(np.array(OP_NAMES)[policies.op_indices], return_counts=True)
    assert sorted(names) == sorted(ops) and np.abs(counts / 9_000 - 1).max() < 0.05
    assert set(np.array(OP_NAMES)[policies.op_indices[policies.negates]]) == {"Rotate"}


def test_with_invert_alone_half_of_the_images_are_inverted():
    images = create_photos(400)
    result = randaugment(images, np.random.default_rng(5), ops_per_image=1, ops=("Invert",))
    visible = result[..., 3:] == 255
    kept, inverted = (((result[..., :3] == other) | ~visible).all(axis=(1, 2, 3)) for other in (images, 255 - images))
    assert (kept ^ inverted).all() and abs(inverted.mean() - 0.5) < 0.1


def test_ops_are_chosen_by_name_or_by_number():
    assert choose_ops() == choose_ops(num_ops=15) == OP_NAMES
    assert choose_ops("Rotate, Invert") == choose_ops("Invert,Rotate") == ("Invert", "Rotate")
    for seed in (0, 1):
        sets = [set(choose_ops(num_ops=number, ops_seed=seed)) for number in range(1, 16)]
        assert [len(names) for names in sets] == list(range(1, 16))
        assert all(smaller < larger for smaller, larger in zip(sets, sets[1:]))
    assert len({choose_ops(num_ops=5, ops_seed=seed) for seed in range(20)}) > 15


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"ops": "Rotate,Blur"}, r"different names among Invert, .*; got ops='Rotate,Blur', unknown=\['Blur'\]"),
        ({"ops": "Rotate,Rotate"}, "different names among .* got ops='Rotate,Rotate'"),
        ({"ops": "Rotate,"}, r"unknown=\[''\]"),
        ({"num_ops": 16}, "num_ops=16: expected 1 to 15, or 0 for all"),
        ({"num_ops": -1}, "num_ops=-1: expected 1 to 15, or 0 for all"),
        ({"ops": "Rotate", "num_ops": 1}, "give the operations or their number, not both"),
    ],
)
def test_ops_that_cannot_be_chosen_are_explained(settings, message):
    with pytest.raises(ValueError, match=message):
        choose_ops(**settings)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_the_same_seed_gives_the_same_images_and_another_seed_others(name):
    images, augment = create_photos(64), AUGMENTATIONS[name].function
    first = augment(images, np.random.default_rng(0))
    np.testing.assert_array_equal(first, augment(images, np.random.default_rng(0)))
    assert (name == "crop_flip") == np.array_equal(first, augment(images, np.random.default_rng(1)))


def test_the_block_size_changes_nothing(monkeypatch):
    images = create_photos(300)
    expected = randaugment(images, np.random.default_rng(0))
    monkeypatch.setattr(randaugment_module, "BLOCK_PIXELS", 3 * 32 * 32)
    np.testing.assert_array_equal(randaugment(images, np.random.default_rng(0)), expected)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_batches_are_neither_modified_nor_shared_and_alpha_has_one_bit(name):
    images = create_photos(100)
    before = images.copy()
    images.flags.writeable = False
    result = AUGMENTATIONS[name].function(images, np.random.default_rng(0))
    np.testing.assert_array_equal(images, before)
    assert not np.shares_memory(result, images)
    assert result.shape == (100, 32, 32, 4) and np.isin(result[..., 3], [0, 255]).all()


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_an_empty_batch_stays_empty(name):
    assert AUGMENTATIONS[name].function(np.zeros((0, 32, 32, 3), np.uint8), np.random.default_rng(0)).shape == (
        0,
        32,
        32,
        4,
    )


def test_policies_are_uniform_over_ops_levels_and_signs_and_half_of_them_fire():
    policies = draw_policies(50_000, 32, 32, np.random.default_rng(0))
    for stage in range(2):
        kinds = policies.op_indices[:, stage] * 9 + policies.levels[:, stage] - 1
        counts = np.bincount(kinds, minlength=15 * 9)
        assert counts.shape == (135,)
        assert np.abs(counts / 50_000 * 135 - 1).max() < 0.25  # four standard deviations are 0.21
        assert abs(policies.fires[:, stage].mean() - 0.5) < 0.01
    signed = np.isin(np.array(OP_NAMES)[policies.op_indices], SIGNED)
    assert abs(policies.negates[signed].mean() - 0.5) < 0.015
    assert not policies.negates[~signed].any()


def test_the_two_ops_of_a_policy_are_independent_and_a_quarter_of_the_images_get_none():
    policies = draw_policies(50_000, 32, 32, np.random.default_rng(1))
    assert abs((policies.op_indices[:, 0] == policies.op_indices[:, 1]).mean() - 1 / 15) < 0.006
    assert abs((~policies.fires).all(axis=1).mean() - 0.25) < 0.01
    assert abs(np.corrcoef(policies.levels.T)[0, 1]) < 0.02


def test_centres_are_uniform_over_the_pixels_of_the_image():
    policies = draw_policies(40_000, 24, 40, np.random.default_rng(2))
    for centers in [policies.final_centers, policies.op_centers[:, 0], policies.op_centers[:, 1]]:
        for axis, length in enumerate([24, 40]):
            counts = np.bincount(centers[:, axis])
            assert len(counts) == length
            assert np.abs(counts / 40_000 * length - 1).max() < 0.15


def test_cutout_clears_half_the_side_around_a_centre_and_nothing_else():
    images = create_photos(2_000)
    result = AUGMENTATIONS["cutout"].function(images, np.random.default_rng(0))
    cut = result[..., 3] == 0
    np.testing.assert_array_equal(result[~cut][:, :3], images[~cut])
    assert (result[cut] == 0).all()
    heights, widths = cut.any(axis=2).sum(axis=1), cut.any(axis=1).sum(axis=1)
    np.testing.assert_array_equal(cut.sum(axis=(1, 2)), heights * widths)
    for lengths in [heights, widths]:
        assert (lengths.min(), lengths.max()) == (8, 16)


@pytest.mark.parametrize("size, longest", [(64, 32), (48, 24), (16, 8)])
def test_the_final_cutout_grows_with_the_image(size, longest):
    result = AUGMENTATIONS["cutout"].function(create_photos(200, size, size), np.random.default_rng(0))
    assert (result[..., 3] == 0).any(axis=2).sum(axis=1).max() == longest


def test_crop_flip_adds_only_an_opaque_alpha_channel():
    images = create_photos(5)
    result = AUGMENTATIONS["crop_flip"].function(images, np.random.default_rng(0))
    np.testing.assert_array_equal(result[..., :3], images)
    assert (result[..., 3] == 255).all()


def test_every_image_that_no_op_changes_still_gets_the_final_cutout():
    images = create_photos(400)
    policies = draw_policies(400, 32, 32, np.random.default_rng(5))
    untouched = ~policies.fires.any(axis=1)
    result = randaugment(images, np.random.default_rng(5))[untouched]
    kept = result[..., 3] == 255
    assert untouched.any() and (~kept).any(axis=(1, 2)).all()
    np.testing.assert_array_equal(result[kept][:, :3], images[untouched][kept])


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(name="Blur"), "unknown operation name='Blur'; choose from Invert, Cutout, .*, Brightness"),
        (dict(level=11), "level must be an integer from 0 to 10 .*got level=11"),
        (dict(level=-1), "got level=-1"),
        (dict(level=2.5), "got level=2.5"),
        (dict(name="Cutout"), r"Cutout needs center=\(row, column\)"),
        (dict(image=np.zeros((8, 8, 4))), r"image must be uint8 \(height, width, 4\), got dtype=float64"),
        (dict(image=np.zeros((8, 8, 3), np.uint8)), r"got dtype=uint8, shape=\(8, 8, 3\)"),
        (dict(image=np.zeros((2, 8, 8, 4), np.uint8)), r"shape=\(2, 8, 8, 4\)"),
    ],
)
def test_apply_op_explains_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        apply_op(**{"image": np.zeros((8, 8, 4), np.uint8), "name": "Rotate", "level": 3, **arguments})


@pytest.mark.parametrize("name", AUGMENTATIONS)
@pytest.mark.parametrize("shape, dtype", [((2, 8, 8, 3), np.float32), ((8, 8, 3), np.uint8), ((2, 8, 8, 4), np.uint8)])
def test_augmentations_explain_wrong_batches(name, shape, dtype):
    with pytest.raises(ValueError, match=r"images must be uint8 \(N, height, width, 3\), got dtype="):
        AUGMENTATIONS[name].function(np.zeros(shape, dtype), np.random.default_rng(0))


def test_operations_without_a_sign_do_not_look_at_negate():
    image = np.random.default_rng(0).integers(0, 256, (16, 16, 4), np.uint8)
    for name, op in OPS.items():
        plain, negated = (apply_op(image, name, 7, negate, center=(5, 5)) for negate in (False, True))
        assert (plain == negated).all() != op.signed, name


# ---- the table of augmentations -------------------------------------------------------------------------------------


def test_one_augmentation_has_operations_and_one_changes_nothing():
    assert [name for name, entry in AUGMENTATIONS.items() if entry.has_ops] == ["randaugment"]
    (identity,) = [entry for entry in AUGMENTATIONS.values() if entry.is_identity]
    images = create_photos(3)
    augmented = identity.function(images, np.random.default_rng(0))
    np.testing.assert_array_equal(augmented[..., :3], images)
    assert np.all(augmented[..., 3] == 255)


def test_options_name_a_part_of_the_operations_to_an_augmentation_that_has_any():
    assert choose_options("randaugment", ["Invert", "Rotate"]) == {"ops": ("Invert", "Rotate")}
    assert choose_options("randaugment", OP_NAMES) == choose_options("cutout", ("Rotate",)) == {}
