"""Tables and lines of measurements, of targets and of the work of a step; tables as Markdown and LaTeX."""
