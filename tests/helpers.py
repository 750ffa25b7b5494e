"""What several test modules share."""


def message(function, *arguments, error=ValueError, **options):
    """The sentence with which a call is refused."""
    try:
        function(*arguments, **options)
    except error as refusal:
        return str(refusal)
    raise AssertionError(f"{function.__name__} accepted what it should refuse")
