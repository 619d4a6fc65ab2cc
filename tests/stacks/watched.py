"""A service whose machines are watched from outside."""

SPEC = """
apiVersion: tonnage/v1
kind: Inference
name: watched
model:
  name: llama-3.1-8b
traffic:
  peak_rps: 3
  input_tokens: {mean: 500, p95: 1500}
  output_tokens: {mean: 150, p95: 400}
sla:
  ttft_p95: 2s
  tpot_p95: 80ms
shutdown:
  idle: 30m
where:
  clouds: [CLOUD]
"""
