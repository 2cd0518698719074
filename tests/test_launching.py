"""Slurm's script and the manifests of Kubernetes: flags that exist, and workers that find each other."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

import image.main
import image.preprocess
from tests.programs import parsed_flags
from utils import cluster, settings

SCRIPTS = Path(__file__).parent.parent / "scripts"
PROGRAMS = {
    "image.main": (image.main, image.main.Config),
    "image.preprocess": (image.preprocess, image.preprocess.PreprocessConfig),
}


def read_manifests(name):
    return {document["kind"]: document for document in yaml.safe_load_all((SCRIPTS / "kubernetes" / name).read_text())}


def create_config(command, **values):
    """The settings of a command, as the program would read them."""
    for name, value in values.items():
        command = [part.replace(name, value) for part in command]
    module, config_class = PROGRAMS[command[command.index("-m") + 1]]
    with parsed_flags(module, *command[command.index("-m") + 2 :]):
        return settings.from_flags(config_class)


def test_the_script_of_slurm_gives_flags_that_exist():
    path = SCRIPTS / "slurm_cifar10.sbatch"
    subprocess.run(["bash", "-n", path], check=True)
    (line,) = re.findall(r"^srun .*", path.read_text().replace("\\\n", " "), re.MULTILINE)
    command = shlex.split(line.replace('"$@" &', "").replace("$sup_size", "250"))
    config = create_config(command)
    assert (config.sup_size, config.train_batch_size, config.unsup_ratio) == (250, 64, 7)


@pytest.mark.parametrize("name", ["preprocess.yaml", "train.yaml"])
def test_a_job_has_as_many_indices_as_its_command_expects(name):
    """Of the schema of Kubernetes only what these manifests need; docs/scaling.md tells how the whole was checked."""
    job = read_manifests(name)["Job"]
    assert (job["apiVersion"], job["spec"]["completionMode"]) == ("batch/v1", "Indexed")
    assert job["spec"]["completions"] == job["spec"]["parallelism"]
    pod = job["spec"]["template"]["spec"]
    assert pod["restartPolicy"] in ("OnFailure", "Never")
    (container,) = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert not job["spec"].keys() - {"completionMode", "completions", "parallelism", "backoffLimit", "template"}


def test_every_pod_of_the_preprocessing_is_one_of_the_replicas():
    spec = read_manifests("preprocess.yaml")["Job"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    for index in range(spec["completions"]):
        config = create_config(container["command"], **{"$(JOB_COMPLETION_INDEX)": str(index)})
        assert (config.worker_id, config.replicas) == (index, spec["completions"])


def test_every_pod_of_the_training_is_one_of_the_workers(monkeypatch):
    manifests = read_manifests("train.yaml")
    service, spec = manifests["Service"], manifests["Job"]["spec"]
    pod, name = spec["template"]["spec"], manifests["Job"]["metadata"]["name"]
    (container,) = pod["containers"]
    create_config(container["command"])
    variables = {variable["name"]: variable for variable in container["env"]}
    assert list(variables) == ["WORKER", "TF_CONFIG"]  # a variable can use those before it
    field = variables["WORKER"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert field == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert (service["spec"]["clusterIP"], service["spec"]["selector"]) == ("None", {"job-name": name})
    assert pod["subdomain"] == service["metadata"]["name"]
    port = service["spec"]["ports"][0]["port"]
    for index in range(spec["completions"]):
        monkeypatch.setenv("TF_CONFIG", variables["TF_CONFIG"]["value"].replace("$(WORKER)", str(index)))
        task = cluster.read_tf_config()
        assert task.index == index
        assert task.addresses == tuple(f"{name}-{i}.{pod['subdomain']}:{port}" for i in range(spec["completions"]))
