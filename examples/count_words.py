#!/usr/bin/env python3
"""Counts the words of a file: a program as a tool."""
import json
import sys


def say(**message):
    print(json.dumps(message), flush=True)


arguments = json.load(sys.stdin)
try:
    with open(arguments["path"], encoding="utf-8") as file:
        words = len(file.read().split())
except (OSError, UnicodeDecodeError) as error:
    say(type="end", status="failed", reason=str(error))
else:
    say(type="text", text=f"{words} words\n")
    say(type="end", status="completed")
