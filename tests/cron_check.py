"""Answers, for each line `start<TAB>cron line`, the next run after the start by croniter, in Unix seconds of UTC."""
import sys
from datetime import datetime, timezone

from croniter import croniter

for line in sys.stdin:
    start, cron = line.rstrip("\n").split("\t")
    moment = datetime.fromtimestamp(int(start), timezone.utc)
    print(int(croniter(cron, moment).get_next(datetime).timestamp()))
