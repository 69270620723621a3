"""The checks: one module for each family of finding codes, named in the first line of the module.

Functions named check_… compare a file with the log. Other functions build the finding of the code in their docstring.
suspect_batches has what a scan finds in batches. Modules that only damage needs are imported with the damage.
"""
