"""How many labels does UDA need? Theorem 1 of the paper as a tool.

    python -m utils.label_budget --shares=0.5,0.3,0.2 --error=0.05
    python -m utils.label_budget --shares_file=counts.txt
    python -m utils.label_budget --features=unlabeled.npz --clusters=30

Consistency training connects examples that augmentation leads from one to the other. Within such a component one label
is enough; an example whose component has no label at all cannot be told. With m labels that are drawn at random, and
components of the shares Pᵢ, that happens with probability Σ Pᵢ(1 − Pᵢ)ᵐ.
"""

import math

import numpy as np
from absl import flags
from matplotlib.figure import Figure
from sklearn.cluster import KMeans

from utils import cli, features, files

FLAGS = flags.FLAGS
MAX_CLUSTERED = 20_000  # examples that are clustered; more would change the shares little, and take long


# ---- the theorem ----------------------------------------------------------------------------------------------------


def expected_error(shares, num_labels):
    """Σ Pᵢ(1 − Pᵢ)ᵐ: the probability that no label lies in the component of a new example."""
    shares = np.asarray(shares, np.float64)
    return float(np.sum(shares * (1 - shares) ** num_labels))


def error_bound(num_components, num_labels):
    """The largest expected error of any `num_components` shares: at most k·mᵐ/(m + 1)ᵐ⁺¹, and 1.

    P(1 − P)ᵐ is largest at P = 1/(m + 1). The paper takes all Pᵢ = 1/k for the worst case instead, and exp(−m/k) for a
    bound, which is none: shares of 1/11 and 10/11 have an error of 0.035 after 10 labels, not 0.0067.
    """
    m = num_labels
    log_term = m * math.log(m) - (m + 1) * math.log(m + 1) if m else 0.0
    return min(num_components * math.exp(log_term), 1.0)


def labels_needed(error_of, error):
    """The smallest number of labels with error_of(number) < error, where error_of falls."""
    high = 1
    while error_of(high) >= error:
        high *= 2
    low = 0
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if error_of(middle) < error else (middle + 1, high)
    return low


# ---- shares ---------------------------------------------------------------------------------------------------------


def normalize(what, sizes):
    """Shares out of sizes or shares of components, all positive."""
    sizes = np.asarray(sizes, np.float64)
    if not len(sizes) or not (np.isfinite(sizes).all() and (sizes > 0).all()):
        raise ValueError(f"{what}: expected positive numbers, the shares or sizes of components.")
    return sizes / sizes.sum()


def parse_sizes(what, text):
    words = text.replace(",", " ").split()
    try:
        return normalize(what, [float(word) for word in words])
    except ValueError as error:
        raise ValueError(f"{what}={files.shorten(text)}: expected positive numbers, such as 0.5,0.3,0.2.") from error


def read_features(path):
    """The array of a .npy file, or `unlabeled`, or else `features`, of an .npz file."""
    if path.endswith(".npy"):
        return features.check_features(f"features={path}", files.read_array(path))
    arrays = files.read_arrays(path, "expected an .npz file of arrays.", f"features={path}")
    name = next((name for name in ("unlabeled", "features") if name in arrays), None)
    if name is None:
        raise ValueError(
            f"features={path} has {files.join_names(sorted(arrays))}: expected an array unlabeled or features."
        )
    return features.check_features(f"features={path}: {name}", arrays[name])


def cluster(examples, num_clusters, seed=0):
    """Shares of the clusters that k-means finds in features [number, width], each brought to deviation 1."""
    if not 1 <= num_clusters <= len(examples):
        raise ValueError(f"clusters={num_clusters}: expected at least 1, and at most {len(examples)}, the examples.")
    if len(examples) > MAX_CLUSTERED:
        examples = np.random.default_rng(seed).choice(examples, MAX_CLUSTERED, replace=False)
    mean, deviation = features.compute_statistics(examples)
    labels = KMeans(num_clusters, n_init=3, random_state=seed).fit_predict((examples - mean) / deviation)
    return normalize("clusters", np.unique(labels, return_counts=True)[1])


# ---- what is shown --------------------------------------------------------------------------------------------------


def format_budget(shares, errors):
    """A Markdown table: for each error, the labels that these shares need, and that any so many components need."""
    count = len(shares)
    lines = [f"| expected error below | labels, {count} components of these shares | any {count} components |"]
    lines += ["|---|---|---|"]
    for error in errors:
        needed = labels_needed(lambda number: expected_error(shares, number), error)
        enough = labels_needed(lambda number: error_bound(count, number), error)
        lines.append(f"| {error:g} | {needed:,} | {enough:,} |")
    return "\n".join(lines)


def draw(path, shares, errors):
    """Draws the expected error and the bound against the number of labels."""
    largest = max(labels_needed(lambda number: expected_error(shares, number), min(errors)), 10)
    numbers = np.unique(np.geomspace(1, 2 * largest, 200).astype(int))
    figure = Figure(figsize=(6, 4.5), layout="tight")
    axes = figure.subplots()
    axes.plot(numbers, [expected_error(shares, number) for number in numbers], label="these shares")
    axes.plot(numbers, [error_bound(len(shares), number) for number in numbers], "--", label=f"any {len(shares)}")
    for error in errors:
        axes.axhline(error, color="grey", linewidth=0.7)
    axes.set(xscale="log", xlabel="labels", ylabel="expected error", title=f"{len(shares)} components")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right")
    with files.explain_refusal(path, "make room, or choose another --output."):
        files.write_figure(path, figure)


# ---- from the command line ------------------------------------------------------------------------------------------


def define_flags():
    flags.DEFINE_string("shares", "", "Shares or sizes of the components or classes, separated by commas.")
    flags.DEFINE_string("shares_file", "", "A text file of them, separated by commas, spaces or lines.")
    flags.DEFINE_string("features", "", ".npz or .npy file with features of unlabelled examples, to find clusters in.")
    flags.DEFINE_integer("clusters", 30, "For --features: number of clusters; several for each class.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "For --features: seed of the clusters.", lower_bound=0)
    flags.DEFINE_list("error", ["0.1", "0.05", "0.01"], "Expected errors to stay below, separated by commas.")
    flags.DEFINE_string("output", "label_budget.png", "Picture of the expected error against the number of labels.")


def main():
    errors = parse_errors(FLAGS.error)
    shares = choose_shares()
    print(f"{len(shares)} components, from {shares.min():.2%} to {shares.max():.2%} of the examples")
    print(format_budget(shares, errors))
    draw(FLAGS.output, shares, errors)
    print(f"expected error against labels: {FLAGS.output}")


def parse_errors(words):
    try:
        errors = [float(word) for word in words]
    except ValueError:
        errors = []
    if not errors or not all(0 < error < 1 for error in errors):
        raise ValueError(f"error={','.join(words)}: expected numbers between 0 and 1, such as 0.05.")
    return errors


def choose_shares():
    given = [name for name in ("shares", "shares_file", "features") if FLAGS[name].value]
    if len(given) != 1:
        raise ValueError(
            f"expected one of --shares, --shares_file and --features, found {' and '.join(given) or 'none'}."
        )
    if FLAGS.features:
        return cluster(read_features(FLAGS.features), FLAGS.clusters, FLAGS.seed)
    if FLAGS.shares:
        return parse_sizes("shares", FLAGS.shares)
    with files.open_file(FLAGS.shares_file) as file:
        return parse_sizes(f"shares_file={FLAGS.shares_file}", file.read())


if __name__ == "__main__":
    cli.run(main, define_flags)
