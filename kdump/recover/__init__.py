"""Recovery: a plan is a value; applying it can be interrupted at any system call, and undone."""
