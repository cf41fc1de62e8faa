module date

go 1.18
