"""A name that no job has is answered with those that may be meant."""

from app.domain.wording.near_names import no_such_job


def test_the_near_names_are_told_or_where_to_look():
    names = ["bert-ft", "resnet-2", "resnet-1", "resnet-1"]
    assert no_such_job("bret-ft", names) == (
        "There is no job 'bret-ft' in this project; did you mean 'bert-ft'?"
    )
    assert no_such_job("Resnet", names).endswith("; did you mean 'resnet-2' or 'resnet-1'?")
    assert no_such_job("zzz", names) == (
        "There is no job 'zzz' in this project; see the list of jobs (`lowtide jobs`)."
    )
    assert len(no_such_job("x" * 10_000, names)) < 200
