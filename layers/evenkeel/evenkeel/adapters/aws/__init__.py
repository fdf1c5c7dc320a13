"""DynamoDB, SQS, EventBridge and Secrets Manager behind the application's ports."""
