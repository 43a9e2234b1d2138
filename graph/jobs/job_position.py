"""The position of a background job that does its work in batches."""


class JobPosition:
    """The id of the last row that a run has begun; the next run continues after it. One per process and job.

    A row that fails therefore does not keep the rows after it waiting. After the last row the job begins again at the first one.
    """

    def __init__(self) -> None:
        self.last_id = 0
