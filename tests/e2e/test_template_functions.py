"""Functions stand in template.yaml only where CloudFormation supports them: no linter says so before a deployment."""

import re
from pathlib import Path

import pytest

from sandbox.template import TEMPLATE, Template
from tests.e2e.template_functions import faults

BASE = """
Parameters:
  Subnets: {Type: CommaDelimitedList, Default: ''}
  Groups: {Type: CommaDelimitedList, Default: ''}
  Name: {Type: String, Default: ''}
Conditions:
  Named: !Not [!Equals [!Ref Name, '']]
Resources:
  Queue: {Type: 'AWS::SQS::Queue'}
"""

# The template of the audited version, word for word; cfn-lint and `sam validate` passed it.
JOINED = """
Rules:
  SubnetsNeedSecurityGroups:
    RuleCondition: !Not [!Equals [!Join ['', !Ref Subnets], '']]
    Assertions:
      - Assert: !Not [!Equals [!Join ['', !Ref Groups], '']]
        AssertDescription: Subnets is set, so Groups must be set too.
"""

EXPORT = "A.Export.Name.Fn::GetAtt"
QUEUE = "Resources: {Queue: {Properties: {A: %s}}}"
RULE = "Rules: {R: {RuleCondition: %s}}"
NAMED = "Conditions: {Named: %s}"

BAD = {
    "a join in a rule": (JOINED, "Rules.SubnetsNeedSecurityGroups.RuleCondition.Fn::Not.0.Fn::Equals.0.Fn::Join"),
    "an if in a rule": (RULE % "!If [Named, true, false]", "Fn::If: CloudFormation"),
    "a condition in a rule": (RULE % "!Condition Named", "Condition: CloudFormation"),
    "a resource in a rule": (RULE % "!Equals [!Ref Queue, '']", "Queue is nothing"),
    "a function within ValueOf": (RULE % "!Equals [!ValueOf [!Ref Name, A], '']", "Fn::ValueOf.0.Ref: CloudFormation"),
    "a join in a condition": (NAMED % "!Equals [!Join ['', !Ref Subnets], '']", "Named.Fn::Equals.0.Fn::Join: CloudF"),
    "a sub in a condition": (NAMED % "!Equals [!Sub '${Name}', '']", "Fn::Sub: CloudFormation"),
    "a resource in a condition": (NAMED % "!Equals [!Ref Queue, '']", "Queue is nothing"),
    "an attribute in a condition": (NAMED % "!Equals [!GetAtt Queue.Arn, '']", "Fn::GetAtt: CloudF"),
    "a rule function in a condition": (NAMED % "!Contains [[a], !Ref Name]", "Fn::Contains: CloudF"),
    "an undeclared condition": (NAMED % "!Not [!Condition Other]", "Other is no condition"),
    "a function in a default": ("Parameters: {Name: {Type: String, Default: !Ref 'AWS::Region'}}", "Parameters.Name"),
    "a function in a mapping": ("Mappings: {M: {a: {b: !Ref Name}}}", "Mappings.M.a.b.Ref"),
    "a function in the description": ("Description: !Sub 'for ${AWS::StackName}'", "Description.Fn::Sub"),
    "a function in the template's metadata": ("Metadata: {Readme: !Ref Name}", "Metadata.Readme.Ref"),
    "a parameter in DependsOn": ("Resources: {Queue: {Type: x}, A: {Type: x, DependsOn: Name}}", "Name is no resource"),
    "a function in DependsOn": ("Resources: {Queue: {Type: x}, A: {DependsOn: !Ref Queue}}", "A.DependsOn.Ref"),
    "a function in DeletionPolicy": (
        "Resources: {Queue: {DeletionPolicy: !If [Named, a, b]}}",
        "DeletionPolicy.Fn::If",
    ),
    "a function as a resource's condition": ("Resources: {Queue: {Type: x, Condition: !Not [a]}}", "by no function"),
    "a comparison in a property": (QUEUE % "!Equals [a, b]", "Fn::Equals: CloudForm"),
    "a comparison as an if's condition": (QUEUE % "!If [!Equals [a, b], c, d]", "by no function"),
    "a delimiter that is computed": (QUEUE % "!Join [!Ref Name, [a, b]]", "Fn::Join.0: must be plain text"),
    "a language extension without its transform": (QUEUE % "!Length [a, b]", "Fn::Length: CloudFormation"),
    "a reference into nothing": (QUEUE % "!Sub '${Gone.Arn}'", "Gone is nothing"),
    "a function in a description": ("Outputs: {A: {Value: a, Description: !Ref Name}}", "A.Description.Ref"),
    "an export's name that a resource gives": ("Outputs: {A: {Value: a, Export: {Name: !GetAtt Queue.Name}}}", EXPORT),
    "an output's undeclared condition": ("Outputs: {A: {Value: a, Condition: B}}", "B is no condition"),
}


def written(folder: Path, text: str) -> Template:
    """A template with these sections in place of the base's own."""
    sections = dict(re.findall(r"(?ms)^(\w+):(.*?)(?=^\w|\Z)", BASE))
    sections |= dict(re.findall(r"(?ms)^(\w+):(.*?)(?=^\w|\Z)", text))
    file = folder / "template.yaml"
    file.write_text("".join(f"{name}:{body.rstrip()}\n" for name, body in sections.items()), encoding="utf-8")
    return Template(file)


def test_every_function_of_the_template_stands_where_cloudformation_supports_it() -> None:
    assert faults(Template().body) == []


def test_the_base_of_the_planted_templates_is_itself_right(tmp_path: Path) -> None:
    assert faults(written(tmp_path, "").body) == []


@pytest.mark.parametrize("what", BAD)
def test_a_planted_function_in_the_wrong_place_is_caught(tmp_path: Path, what: str) -> None:
    text, says = BAD[what]
    found = faults(written(tmp_path, text).body)
    assert any(says in fault for fault in found), found


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
