module lorentz.bench/timers

go 1.19
