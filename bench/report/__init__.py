"""``bench report``: finished cells as one HTML page that needs no network; no cell is run for it.

:mod:`bench.report.content` collects what the page shows, :mod:`bench.report.questions` the data of the
question browser, and :mod:`bench.report.page` renders the page.
"""
