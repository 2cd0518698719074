"""What the metrics of a run say about it: rules that find what is wrong, why it matters, and which flag to change.

    for finding in diagnose(run_dir.read_metrics(model_dir), config):
        print(format_finding(finding))

A rule is a function (lines, config) → (saw, why, advice) or None, and stands in RULES under its name. It sees the lines
written so far, so that it can speak while the training goes on, and is silent where a metric that it needs is missing.
No rule looks at the test set. docs/diagnosis.md shows a run for each.
"""

import collections
import itertools
import math

from utils.auto_settings import suggest_decay

Finding = collections.namedtuple("Finding", "name saw why advice")


def diagnose(lines, config):
    """What is wrong with a run.

    Args:
      lines: as run_dir.read_metrics gives them: dicts with "step" and numbers.
      config: the settings of the run, as in config.json.

    Returns:
      A list of Finding, in the order of RULES; empty if nothing is conspicuous.
    """
    config = {"train_steps": lines[-1]["step"] if lines else 1} | config  # of an old run there may be the lines alone
    findings = [(name, rule(lines, config)) for name, rule in RULES.items()]
    return [Finding(name, *found) for name, found in findings if found]


def format_finding(finding):
    return f"diagnosis: {finding.name}. {finding.saw} {finding.why} {finding.advice}"


class Adviser:
    """Looks at a run while it trains, and tells each finding once; at the end, all that the whole run shows."""

    def __init__(self, lines, config, tell):
        """Args:
        lines: those of the part of the run that was made before; what they show has been told.
        tell: a function that shows a text to the user.
        """
        self.lines, self.config, self.tell = list(lines), config, tell
        self.told = {finding.name for finding in diagnose(self.lines, config)} if lines else set()
        self._tell_news()  # some settings need no step to be seen through

    def look(self, step, metrics):
        self.lines.append({"step": step, **metrics})
        self._tell_news()

    def _tell_news(self):
        for finding in diagnose(self.lines, self.config):
            if finding.name not in self.told:
                self.told.add(finding.name)
                self.tell(format_finding(finding))

    def conclude(self):
        findings = diagnose(self.lines, self.config)
        for finding in findings:
            self.tell(format_finding(finding))
        if not findings and any("sup_loss" in line for line in self.lines):  # not of pre-training, which has no rules
            self.tell("diagnosis: nothing conspicuous.")


# ---- what rules look at ---------------------------------------------------------------------------------------------

RECENT = 3  # lines that must agree: a single one may be chance
SHORT = 60  # seconds: a run that takes less, such as of a linear classifier, need not be made faster


def recent(lines, name):
    """The last values of a metric; none if there are fewer than RECENT."""
    values = [line[name] for line in lines if name in line][-RECENT:]
    return values if len(values) == RECENT else []


def mean(values):
    return sum(values) / len(values)


def progress(lines, config):
    """The part of the training that is done, from 0 to 1."""
    return lines[-1]["step"] / config["train_steps"] if lines else 0.0


# ---- rules ----------------------------------------------------------------------------------------------------------


def nothing_passes(lines, config):
    kept, threshold = recent(lines, "unsup_kept_ratio"), config.get("uda_confidence_thresh", -1)
    # The labels come first; but the quickstart keeps 22 % after a tenth of the steps, and 68 % after a fifth.
    if not kept or threshold <= 0 or progress(lines, config) < 0.2 or max(kept) >= 0.01:
        return None
    confidence = mean(recent(lines, "original_confidence"))
    suggested = max(math.floor(20 * confidence) / 20, 0.05)  # about half of the examples exceed the mean
    return (
        f"After {progress(lines, config):.0%} of the steps, {max(kept):.1%} of the unlabelled examples are surer than "
        f"β={threshold:g}; their mean confidence is {confidence:.2f}.",
        "What is not surer is masked, so nothing is learnt from the unlabelled data.",
        f"Use --uda_confidence_thresh={min(suggested, threshold):g}, or more --train_steps.",
    )


def sure_and_wrong(lines, config):
    names = ("unsup_kept_ratio", "original_confidence", "augmented_confidence")
    if not all(recent(lines, name) and min(recent(lines, name)) > 0.95 for name in names):
        return None
    evidence = _fallen_balance(lines) or _surer_than_right(lines, config)
    if not evidence:
        return None
    confidences = " and ".join(f"{mean(recent(lines, name)):.2f}" for name in names[1:])
    threshold, temperature = config.get("uda_confidence_thresh", -1), config.get("uda_softmax_temp", -1)
    flags = ["--uda_softmax_temp=1"] * (0 < temperature < 1) + ["--uda_confidence_thresh=0.95"] * (threshold < 0.95)
    flags += ["--tsa=linear"] * (not config.get("tsa", "") and threshold <= 0) + ["fewer --train_steps"]
    return (
        f"{mean(recent(lines, names[0])):.0%} of the unlabelled examples pass, with a confidence of {confidences} on "
        f"their two views, and {evidence}.",
        "Wrong targets that are certain are learnt like right ones, and nothing takes them back.",
        f"Use {' or '.join(flags)}.",
    )


def _fallen_balance(lines):
    balance, distance = recent(lines, "pseudo_label_balance"), recent(lines, "pseudo_label_distance")
    highest = max((line.get("pseudo_label_balance", 0) for line in lines), default=0)
    # Labels of uneven shares have a balance below 1, too: then it is the way towards them that the balance falls.
    if balance and distance and mean(balance) < highest - 0.1 and mean(distance) > 0.1:
        return f"the balance of their classes has fallen from {highest:.2f} to {mean(balance):.2f}"
    return None


def _surer_than_right(lines, config):
    accuracies = [line["dev_accuracy"] for line in lines if "dev_accuracy" in line]
    error = _chance_error(accuracies[-1], config) if accuracies else 0
    # Unlabelled examples are no harder than those of the development split: half as many wrong as sure is calibrated.
    if accuracies and accuracies[-1] < mean(recent(lines, "original_confidence")) - 0.15 - 2 * error:
        return f"only {accuracies[-1]:.0%} of the development split are right"
    return None


def _chance_error(accuracy, config):
    """The standard error of an accuracy on the development split."""
    return math.sqrt(max(accuracy * (1 - accuracy), 0.01) / max(config.get("dev_size", 0), 1))


def one_class_swallows(lines, config):
    excess, distance = recent(lines, "pseudo_label_excess"), recent(lines, "pseudo_label_distance")
    if not excess or progress(lines, config) < 0.3 or not _is_one_class(excess, distance):
        return None
    threshold = config.get("uda_confidence_thresh", -1)
    flags = "--uda_confidence_thresh=0.8" if threshold < 0.8 else f"--unsup_coeff={config.get('unsup_coeff', 1) / 4:g}"
    return (
        f"Of the unlabelled examples, {mean(excess):.0%} more are taken for one class than its share of the labels.",
        "A class that is predicted too often gets more targets, is predicted still more often, and the others vanish.",
        f"Use {flags}. If the unlabelled data do hold so many of it, give it as large a share of the labels.",
    )


def _is_one_class(excess, distance):
    """Whether it is one class that has too many predictions, by a quarter of all examples, and not several."""
    return bool(excess) and min(excess) > 0.25 and mean(excess) > 0.75 * mean(distance)


def unlike_the_labelled(lines, config):
    excess, distance = recent(lines, "pseudo_label_excess"), recent(lines, "pseudo_label_distance")
    # A classifier that is 80 % right may be off by 20 % in its shares, too.
    if not distance or progress(lines, config) < 0.3 or min(distance) < 0.25 or _is_one_class(excess, distance):
        return None
    return (
        f"The classes predicted on unlabelled examples have other shares than the labels: {mean(distance):.0%} of the "
        "examples would have to change their class.",
        "UDA spreads labels to unlabelled examples that are like them; examples from elsewhere get wrong ones.",
        "Look at examples of --unlabeled_dir or --unlabeled_file; keep those that fit with image.filter_domain or "
        "text.filter_domain; or label examples as they come instead of equally many of each class.",
    )


def learnt_by_heart(lines, config):
    if config.get("tsa", "") or not config.get("unsup_ratio", 0):
        return None
    # Long before the end; the quickstart has a loss of 0.006 then, and 0.003 halfway.
    early = [line for line in lines if line["step"] <= 0.3 * config["train_steps"]]
    losses, confidences = recent(early, "sup_loss"), recent(early, "augmented_confidence")
    # Where the unlabelled data are learnt as well, as in the long runs of the paper, nothing is amiss.
    if not losses or not confidences or max(losses) > 1e-3 or mean(confidences) > 0.8:
        return None
    # Annealing keeps the network from becoming surer than a threshold: docs/results.md has what both together cost.
    without_threshold = " with --uda_confidence_thresh=-1" if config.get("uda_confidence_thresh", -1) > 0 else ""
    return (
        f"The labelled loss is {mean(losses):.1g} at step {early[-1]['step']} of {config['train_steps']}, while the "
        f"confidence on augmented unlabelled examples is {mean(confidences):.2f}.",
        "Labels that are known by heart teach nothing more, and make the network too sure before the unlabelled data "
        "have had their say.",
        f"Use --tsa={'exp' if config.get('sup_size', 0) <= 1000 else 'log'}{without_threshold}, which leaves out "
        "labelled examples that are known already.",
    )


def average_at_its_start(lines, config):
    decay, steps = config.get("ema_decay", 0), config["train_steps"]
    left = decay**steps
    if left < 0.1:
        return None
    return (
        f"With ema_decay={decay:g}, {left:.0%} of the averaged weights are still the initial ones after "
        f"train_steps={steps}.",
        "Evaluation, export and prediction use the averaged weights.",
        f"Use --ema_decay={suggest_decay(steps):g}: an average over about a tenth of the steps.",
    )


def augmentation_too_strong(lines, config):
    gaps = [abs(line["original_confidence"] - line["augmented_confidence"]) for line in lines if _has_views(line)]
    # Halfway, the views have had time to come closer; the quickstart's gap is 0.22 at most, and 0.19 halfway.
    if len(gaps) < 2 * RECENT or progress(lines, config) < 0.5 or min(gaps[-RECENT:]) < 0.3:
        return None
    before = mean(gaps[len(gaps) // 2 - RECENT + 1 : len(gaps) // 2 + 1])
    if mean(gaps[-RECENT:]) < 0.8 * before:
        return None  # it closes
    original, augmented = (mean(recent(lines, name)) for name in ("original_confidence", "augmented_confidence"))
    return (
        f"The confidence is {original:.2f} on unlabelled examples, {augmented:.2f} on their augmented views; the gap "
        "does not close.",
        "Augmented views that no longer show their class can only be matched by predicting nothing in particular.",
        "Use a weaker augmentation: --aug_ops=cutout, or RandAugment with fewer --ops; in texts a smaller number, such "
        "as --aug_ops=tf_idf-0.3 or bt-0.7.",
    )


def _has_views(line):
    return "original_confidence" in line and "augmented_confidence" in line


def augmentation_too_weak(lines, config):
    seen = [line for line in lines if "view_divergence" in line and "original_confidence" in line]
    seen = seen[1:]  # before the first updates all predictions may be alike
    # Predictions that are hardly surer than none at all cannot differ yet.
    if len(seen) < RECENT or progress(lines, config) < 0.3 or seen[-1]["original_confidence"] < 0.5:
        return None
    # As a part of the doubt that there is: a network that is sure of everything cannot differ much on anything. The
    # lowest part in a healthy run, of slow learning on features, was 0.003; that of the quickstart is 0.3.
    parts = [line["view_divergence"] / max(1 - line["original_confidence"], 1e-6) for line in seen]
    if max(parts) > 1e-3:
        return None
    return (
        "The predictions on the two views of unlabelled examples never differed by more than "
        f"{max(line['view_divergence'] for line in seen):.1g} nats, while their confidence is "
        f"{seen[-1]['original_confidence']:.2f}.",
        "Views that are predicted alike from the start have nothing to teach each other.",
        "Use a stronger augmentation: --aug_ops=randaugment; in texts a larger number, such as --aug_ops=tf_idf-0.7 or "
        "bt-0.9.",
    )


def learning_rate_too_high(lines, config):
    seen = [line for line in lines if "sup_loss" in line and "sup_accuracy" in line]
    losses, accuracies = [line["sup_loss"] for line in seen], recent(seen, "sup_accuracy")
    if len(seen) < 1 + RECENT or progress(lines, config) < 0.2:
        return None
    # With too low a rate nothing moves at all; with too high a one the loss moves, but nothing is learnt.
    learns = mean(accuracies) > seen[0]["sup_accuracy"] + 0.05 or max(losses) < 1.05 * min(losses)
    # No classifier that learns has a loss of 10 nats.
    if max(accuracies) > 0.5 or (learns and min(losses[-RECENT:]) < 10):
        return None
    rate = config.get("learning_rate", 0)
    return (
        f"The labelled loss was {losses[0]:.3g} in the first {seen[0]['step']} steps and is now "
        f"{mean(losses[-RECENT:]):.3g}, with an accuracy of {mean(accuracies):.0%} on the labelled examples and "
        f"learning_rate={rate:g}.",
        "Few labels are easily learnt; if they are not, each update overshoots, or has broken the network.",
        f"Use --learning_rate={rate / 10:g}, or more --warmup_steps.",
    )


def labels_forgotten(lines, config):
    seen = [(line["sup_accuracy"], line["step"]) for line in lines if "sup_accuracy" in line]
    bests = itertools.accumulate(seen, max)  # up to each line
    windows = (seen[number + 1 : number + 1 + RECENT] for number in range(len(seen) - RECENT))
    # Wherever it was in the run: that the labels were learnt again does not undo what was learnt meanwhile.
    falls = [(best, mean([accuracy for accuracy, _ in window]), window) for best, window in zip(bests, windows)]
    (best, best_step), low, window = max(falls, key=lambda fall: fall[0][0] - fall[1], default=((0, 0), 0, []))
    # More than chance, in a line of few examples.
    num_examples = config.get("log_steps", 100) * config.get("train_batch_size", 1)
    if best - low < max(3 * math.sqrt(low * (1 - low) / num_examples), 0.15):
        return None
    rate, weight = config.get("learning_rate", 0), config.get("unsup_coeff", 1)
    lower_weight = f" or --unsup_coeff={weight / 4:g}" if config.get("unsup_ratio") else ""
    return (
        f"The accuracy on the labelled examples was {best:.0%} at step {best_step} and {low:.0%} at steps "
        f"{window[0][1]} to {window[-1][1]}.",
        "The labels alone tell what is to be told apart: a network that gives them up learns something else.",
        f"Use --learning_rate={rate / 3:.1g}{lower_weight}.",
    )


def input_is_slower(lines, config):
    seen = [line for line in lines if "input_wait_ratio" in line]
    waits = recent(seen[1:], "input_wait_ratio")  # the first one has the filling of buffers in it
    # Below a third the step would not gain more than half of its speed.
    if not waits or min(waits) < 1 / 3 or run_seconds(lines, config) < SHORT:
        return None
    if config.get("aug_mode") == "online":
        advice = "Write copies beforehand, with --aug_mode=offline in preprocessing and training."
    else:
        advice = "Put --data_dir on a local disk, and leave more cores to the program."
    return (
        f"The step waited for its input in {mean(waits):.0%} of the time.",
        "The device stands still meanwhile.",
        advice + " A smaller --unsup_ratio needs less input.",
    )


def run_seconds(lines, config):
    """How long all steps of the run take, at the speed of the last lines; infinite if they do not tell."""
    speeds = recent(lines, "examples_per_second")
    examples_per_step = config.get("train_batch_size", 1) * (1 + 2 * config.get("unsup_ratio", 0))
    return config["train_steps"] * examples_per_step / mean(speeds) if speeds else math.inf


def development_accuracy_falls(lines, config):
    evaluations = [(line["step"], line["dev_accuracy"]) for line in lines if "dev_accuracy" in line]
    if len(evaluations) <= RECENT:
        return None
    best_step, best = max(evaluations, key=lambda evaluation: (evaluation[1], -evaluation[0]))
    last = [accuracy for _, accuracy in evaluations[-RECENT:]]
    # More than chance: two standard errors of an accuracy on so few examples, and two points.
    if max(last) > best - max(2 * _chance_error(best, config), 0.02):
        return None
    # Before step 0 there was the first of two stages: no number of steps of the second is better.
    steps = f"--train_steps={best_step}, which also lets the learning rate fall by then, or " if best_step else ""
    return (
        f"The accuracy on the development split was {best:.1%} at step {best_step} and is {last[-1]:.1%} at step "
        f"{evaluations[-1][0]}.",
        "The training goes on in a direction that is no longer that of the task; the best checkpoint is kept and used.",
        f"Use {steps}a lower --unsup_coeff or --learning_rate.",
    )


RULES = {
    "nothing passes the confidence threshold": nothing_passes,
    "sure of wrong targets": sure_and_wrong,
    "one class swallows the others": one_class_swallows,
    "unlabelled data unlike the labelled": unlike_the_labelled,
    "labels learnt by heart": learnt_by_heart,
    "average of the weights still at its start": average_at_its_start,
    "augmentation too strong": augmentation_too_strong,
    "augmentation too weak": augmentation_too_weak,
    "learning rate too high": learning_rate_too_high,
    "labels forgotten": labels_forgotten,
    "input slower than the step": input_is_slower,
    "development accuracy falls": development_accuracy_falls,
}
