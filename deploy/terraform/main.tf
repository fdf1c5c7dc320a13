# Deploys the folder that `make package` writes, by a bucket in the stack's region that CloudFormation reads. It needs no SAM CLI.
terraform {
  required_providers {
    aws = { source = "hashicorp/aws", version = ">= 5.0" }
  }
}

variable "bucket" { type = string }

variable "parameters" {
  type        = map(string)
  description = "Parameters of template.yaml. AlarmTopicArn is required; DryRun is true unless you set it."
}

variable "name" {
  type    = string
  default = "evenkeel"
}

variable "tags" {
  type    = map(string)
  default = {}
}

locals {
  package = "${path.module}/.."
  prefix  = "${var.name}/${filesha256("${local.package}/SHA256SUMS")}" # other files, other keys: CloudFormation sees a change
  code    = "$${1}s3://${var.bucket}/${local.prefix}/$${2}"
}

data "aws_s3_bucket" "releases" {
  bucket = var.bucket
}

resource "aws_s3_object" "code" {
  for_each = fileset(local.package, "*.zip")
  bucket   = var.bucket
  key      = "${local.prefix}/${each.value}"
  source   = "${local.package}/${each.value}"
}

resource "aws_s3_object" "template" {
  bucket  = var.bucket
  key     = "${local.prefix}/template.yaml"
  content = replace(file("${local.package}/template.yaml"), "/(Uri: )(\\w+\\.zip)/", local.code)
}

resource "aws_cloudformation_stack" "evenkeel" {
  name         = var.name
  template_url = "https://${data.aws_s3_bucket.releases.bucket_regional_domain_name}/${aws_s3_object.template.key}"
  parameters   = var.parameters
  capabilities = ["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"] # the template has a transform, SAM
  tags         = var.tags
  depends_on   = [aws_s3_object.code]
}

output "outputs" {
  value = aws_cloudformation_stack.evenkeel.outputs
}
