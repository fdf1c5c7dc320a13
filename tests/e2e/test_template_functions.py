"""template.yaml has functions only where CloudFormation supports them: no linter checks this before a deployment."""

from pathlib import Path

from sandbox.template import TEMPLATE, Template
from tests.e2e.template_functions import faults


def test_every_function_of_the_template_stands_where_cloudformation_supports_it() -> None:
    assert faults(Template().body) == []


def test_the_audited_form_put_back_into_our_own_template_is_caught(tmp_path: Path) -> None:
    text = TEMPLATE.read_text(encoding="utf-8")
    asked = "RuleCondition: !Not [!Equals [!Ref VpcSubnetIds, '']]"
    assert asked in text
    file = tmp_path / "template.yaml"
    file.write_text(text.replace(asked, "RuleCondition: !Not [!Equals [!Join ['', !Ref VpcSubnetIds], '']]"), "utf-8")
    assert faults(Template(file).body) == [
        "Rules.SubnetsNeedSecurityGroups.RuleCondition.Fn::Not.0.Fn::Equals.0.Fn::Join: "
        "CloudFormation does not support it there"
    ]
