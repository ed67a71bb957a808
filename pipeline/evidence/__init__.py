"""What was observed: findings, soft evidence, cases and their files."""
