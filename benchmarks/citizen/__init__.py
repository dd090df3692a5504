"""What ``bench_citizen`` needs: a server that refuses, dies and returns, a job, and what was seen."""
