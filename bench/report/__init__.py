"""``bench report``: finished cells as one HTML page that needs no network; nothing is computed for it.

:mod:`bench.report.content` gathers tables and figures, :mod:`bench.report.questions` what the browser of
questions shows, and :mod:`bench.report.page` makes the page of both.
"""
