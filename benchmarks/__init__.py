"""How fast it is: a script a family, `python -m benchmarks` runs them all.

Each script has a `main()` that reads its options from the command line, knows `--tiny`
(the least that still runs every line) and prints one JSON object a line.
"""
