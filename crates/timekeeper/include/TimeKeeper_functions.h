/* The name of timekeeper.h in TimeKeeper's published code. */
#include "timekeeper.h"
