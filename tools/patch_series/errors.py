"""What goes wrong. Either way there is one line for the user, and nothing is changed."""


class Refused(Exception):
    """The tree, or where things shall go, is not fit for the series."""


class WrongContent(Exception):
    """A file of the series is written wrongly: a mistake of the project, and none of the user."""
