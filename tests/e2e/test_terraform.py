"""deploy/terraform plans the stack of a package. Without Terraform, its text is compared with the template."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from deploy.package import SUMS, packaged
from evenkeel.adapters.auto_scaling.read import OWN_TAGS
from sandbox.template import ROOT, Template
from tests.unit.project.test_docs import blocks

FOLDER = ROOT / "deploy" / "terraform"
TEXT = (FOLDER / "main.tf").read_text(encoding="utf-8")
TERRAFORM = shutil.which("terraform")
PACKAGED, PARTS = packaged((ROOT / "template.yaml").read_text(encoding="utf-8"))

needs_terraform = pytest.mark.skipif(TERRAFORM is None, reason="there is no terraform here")


def terraform(folder: Path, *words: str, may_fail: bool = False) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "CHECKPOINT_DISABLE": "1"}
    command = [TERRAFORM or "terraform", *words]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert may_fail or done.returncode == 0, done.stdout + done.stderr
    return done


def test_it_is_a_wrapper_of_sixty_lines_with_closed_blocks() -> None:
    assert len(TEXT.splitlines()) <= 60
    plain = re.sub(r"#.*|\"(?:\\.|\$\{(?:[^{}\"]|\"[^\"]*\")*\}|[^\"\\])*\"", "", TEXT)
    for opening, closing in ("{}", "()", "[]"):
        assert plain.count(opening) == plain.count(closing) > 0
    declared = {name for kind, name in re.findall(r'^(variable|output) "(\w+)"', TEXT, re.M) if kind == "variable"}
    assert declared == set(re.findall(r"\bvar\.(\w+)", TEXT))


def test_it_names_parameters_and_capabilities_of_the_template() -> None:
    (described,) = re.findall(r'description = "Parameters of template.yaml\. (.*)"', TEXT)
    assert set(re.findall(r"\b[A-Z]\w+[A-Z]\w+\b", described)) <= Template().parameters.keys()
    (capabilities,) = re.findall(r"capabilities = (\[.*?\])", TEXT)
    assert json.loads(capabilities) == ["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"]
    assert Template().body["Transform"]
    assert not any("RoleName" in role for role in Template().of_type("AWS::IAM::Role").values())


def test_its_pattern_finds_each_zip_of_a_packaged_template() -> None:
    (pattern,) = re.findall(r', "/(.*)/", local\.code\)', TEXT)
    assert re.findall(pattern.replace("\\\\", "\\"), PACKAGED) == [("Uri: ", f"{part}.zip") for part in PARTS]


SHOWN = [body for _, body in blocks(ROOT / "docs" / "guides" / "eks-tags.md", "hcl")]


def test_the_terraform_of_the_guide_names_the_tags_of_pools_and_evenkeels_own() -> None:
    assert len(SHOWN) == 3
    assert all('"evenkeel.dev/pool"' in text for text in SHOWN)
    assert all(f'"{key}"' in "".join(SHOWN) for key in OWN_TAGS)
    assert "ignore_changes = [tag, min_size, max_size, desired_capacity]" in SHOWN[0]


@needs_terraform
@pytest.mark.parametrize("text", SHOWN)
def test_the_terraform_of_the_guide_parses_and_is_formatted(text: str, tmp_path: Path) -> None:
    (tmp_path / "main.tf").write_text(text, encoding="utf-8")
    terraform(tmp_path, "fmt", "-check", "-diff", ".")


@needs_terraform
def test_it_is_formatted_as_terraform_does_it() -> None:
    terraform(ROOT, "fmt", "-check", "-diff", str(FOLDER))


OVERRIDE = """
provider "aws" {
  region                      = "eu-central-1"
  skip_credentials_validation = true
  skip_requesting_account_id  = true
  skip_metadata_api_check     = true
  s3_use_path_style           = true
  endpoints {
    s3 = "%s"
  }
}
"""


@needs_terraform
def test_it_plans_the_stack_of_a_package(tmp_path: Path, aws: Any) -> None:
    package, module = tmp_path / "package", tmp_path / "package" / "terraform"
    shutil.copytree(FOLDER, module)
    (package / "template.yaml").write_text(PACKAGED)
    (package / SUMS).write_text("sums\n")
    for part in PARTS:
        (package / f"{part}.zip").write_bytes(b"zip")
    bucket = f"modules-{os.getpid()}"
    aws.client("s3").create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": aws.region})
    (module / "provider.tf").write_text(OVERRIDE % aws.environment()["AWS_ENDPOINT_URL"])
    if terraform(module, "init", "-no-color", may_fail=True).returncode != 0:
        pytest.skip("terraform cannot fetch the AWS provider here")
    terraform(module, "validate", "-no-color")
    given = ["-var", f"bucket={bucket}", "-var", 'parameters={AlarmTopicArn="nobody"}', "-var", 'tags={team="a"}']
    terraform(module, "plan", "-no-color", "-input=false", "-out=plan", *given)
    planned = json.loads(terraform(module, "show", "-json", "plan").stdout)["planned_values"]["root_module"][
        "resources"
    ]
    values = {one["address"]: one["values"] for one in planned}
    prefix = values["aws_s3_object.template"]["key"].rpartition("/")[0]
    uris = re.findall(r"(?:Code|Content)Uri: (\S+)", values["aws_s3_object.template"]["content"])
    assert uris == [f"s3://{bucket}/{prefix}/{part}.zip" for part in PARTS]
    keys = {one["key"] for address, one in values.items() if address.startswith("aws_s3_object.code")}
    assert keys == {f"{prefix}/{part}.zip" for part in PARTS}
    stack = values["aws_cloudformation_stack.evenkeel"]
    assert stack["template_url"] == f"https://{bucket}.s3.eu-central-1.amazonaws.com/{prefix}/template.yaml"
    assert (stack["parameters"], stack["tags"]) == ({"AlarmTopicArn": "nobody"}, {"team": "a"})
