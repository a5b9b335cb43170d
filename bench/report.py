"""What is printed: a block of lines for each row, and at the end what missed its goal."""


class Report:
    """Prints as it goes; `status` is the exit status."""

    def __init__(self):
        self.row, self.missed, self.failures = "", [], []

    @property
    def status(self):
        """1 when a row failed or computed something else."""
        return 1 if self.failures else 0

    def start(self, row):
        """The lines that follow are of this row."""
        self.row = row
        print(row, flush=True)

    def line(self, text):
        """One line of the row."""
        print(f"  {text}", flush=True)

    def fail(self, text):
        """A line of what went wrong."""
        self.failures.append(f"{self.row}: {text}")
        self.line(f"FAILED: {text}")

    def judge(self, what, value, most, subject=""):
        """'0.98 of torch CPU (goal 1.1)'; a goal that `subject` misses is repeated at the end."""
        shown = f"{value:.2f}" if isinstance(value, float) else str(value)
        if most is None:
            return f"{shown} {what}"
        if value > most:
            self.missed.append(f"{self.row}: {subject or 'tpu'}: {shown} {what}, goal {most}")
        return f"{shown} {what} ({'goal' if value <= most else 'MISSED'} {most})"

    def finish(self):
        """The closing lines."""
        print(f"{len(self.missed)} goals missed{':' if self.missed else ''}")
        for text in self.missed:
            print(f"  {text}")
        for text in self.failures:
            print(f"FAILED {text}")
