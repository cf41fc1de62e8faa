module lorentz.test/waits

go 1.19
