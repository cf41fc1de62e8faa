import time

import schedule

runs = [time.time()]
schedule.every(10).minutes.do(lambda: runs.append(time.time()))
end = time.time() + 3 * 3600
while time.time() < end:
    schedule.run_pending()
    time.sleep(20)
silences = [after - before for before, after in zip(runs, runs[1:], strict=False)]
print(f"the longest silence: {max(silences) / 60:.0f} minutes")
