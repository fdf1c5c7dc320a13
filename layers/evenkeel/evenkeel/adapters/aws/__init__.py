"""The adapters for AWS: DynamoDB, SQS, EventBridge, S3, KMS and Secrets Manager."""
