import sys
import time

import pygame

days = int(sys.argv[1])
pygame.init()
time.sleep(days * 86400)
print(f"slept {days} days, get_ticks says {pygame.time.get_ticks() / 86400e3:.2f}")
