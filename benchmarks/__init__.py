"""Speed and error of poolgrad beside the frameworks installed here: `python -m benchmarks --help`."""
