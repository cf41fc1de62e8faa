"""Judges studies of `lorentz study`: statistics, plots, a page, and a summary in words.

    lorentz report run.parquet -o report            # or python -m lorentz.report

The tests are those of the papers, by scipy, pingouin, scikit-posthocs and statsmodels. Each module
has one job: `runs` reads, `judge` tests, `factors` compares the effects of function, level and
load. `power` computes which differences were detectable, `published` has the papers' tables,
`against` compares two studies. `plots` and `curves` draw, `words` writes the summary, `page` writes
the report. Modules are imported when they are needed:

    from lorentz.report.page import write
    from lorentz.report.runs import read

    write(read(["run.parquet"]), Path("report"))
"""
