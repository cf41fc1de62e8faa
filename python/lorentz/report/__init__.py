"""Judges studies of `lorentz study`: statistics, plots, a page, and a summary in words.

    lorentz report run.parquet -o report            # or python -m lorentz.report

The tests are those of the papers, by scipy, pingouin, scikit-posthocs and statsmodels. Each module
has one job: `runs` reads, `judge` tests, `compared` puts each level beside the baseline, `factors`
weighs function, level and load, `power` computes the sensitivity, `published` has the papers'
tables, `against` compares two studies, `plots` and `curves` draw, `words` sums up, `page` writes.
They are loaded when they are needed:

    from lorentz.report.page import write
    from lorentz.report.runs import read

    write(read(["run.parquet"]), Path("report"))
"""
