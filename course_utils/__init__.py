"""The tested implementation of what each chapter of the course builds: one module a chapter, imported by its name."""
