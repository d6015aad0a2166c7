"""What exists has its line in the docs: settings, routes, commands, fields of a job."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from pydantic import BaseModel

import app.adapters.providers.local
from app.backtest.cells import PlanOverrides, PoolSetting, cells_of, read_plan
from app.backtest.traces import read_trace
from app.cli.server.launch_stages import JobHistory, refusal_failure
from app.domain.spec.job_spec import JobSpec, parse_spec
from app.domain.spec.job_spec_fields import Checkpoint, Resources
from app.settings import PREFIX, Settings, render_page
from tests.support.servers.finished_commands import run_command
from tests.support.sources.source_tree import ROOMS, ROOT, source_files, strings_of
from tests.support.stories.presence import present

DOCS = ROOT / "docs"


def _routes(routes: Any) -> Iterator[tuple[str, str]]:
    """(method, path) of every route, those of mounted routers included."""
    for route in routes:
        path = getattr(route, "path", None)
        methods = getattr(route, "methods", None)
        if path is not None and methods:
            yield from ((method, path) for method in sorted(methods - {"HEAD", "OPTIONS"}))
        else:
            included = getattr(route, "original_router", route)
            yield from _routes(getattr(included, "routes", None) or ())


def _commands(command: Any, name: str) -> Iterator[str]:
    """The full names of every command that can be run, groups left out."""
    inner = getattr(command, "commands", None)
    if not inner:
        yield name
        return
    for word, child in inner.items():
        if not child.hidden:
            yield from _commands(child, f"{name} {word}")


@pytest.mark.parametrize(
    ("page", "module"),
    [
        ("settings", "app.settings"),
        ("trainer-options", "trainer.protocol.train_options"),
        ("state-machines", "app.domain.state_diagrams"),
    ],
)
def test_a_generated_page_is_what_its_command_writes(page: str, module: str):
    printed = run_command([sys.executable, "-m", module], timeout=300, cwd=ROOT, check=True)
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    assert text == printed.stdout, "run: make docs-regenerate"


def test_every_setting_is_described():
    page = render_page()
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert f"`{PREFIX}{name.upper()}`" in page, name


def test_every_route_is_documented():
    from app.api.main import app

    page = (DOCS / "api.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`(GET|POST|PUT|PATCH|DELETE) (/[^`]*)`", page))
    generated_by_fastapi = {"/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json"}
    real = {(m, p) for m, p in _routes(app.routes) if p not in generated_by_fastapi}
    assert real, "found no route at all"
    assert sorted(real - told) == [], "routes missing in docs/api.md, as `METHOD /path`"
    assert sorted(told - real) == [], "docs/api.md tells of routes that do not exist"


def test_every_command_is_documented():
    from app.cli import main

    [cli] = [value for value in vars(main).values() if isinstance(value, typer.Typer)]
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^#+ `(lowtide(?: [a-z-]+)+)", page, re.MULTILINE))
    real = set(_commands(typer.main.get_command(cli), "lowtide"))
    assert real, "found no command at all"
    assert sorted(real - told) == [], "commands missing in docs/cli.md, as a heading `lowtide …`"
    assert sorted(told - real) == [], "docs/cli.md tells of commands that do not exist"


def _names_in(path: str) -> set[str]:
    text = (ROOT / path).read_text(encoding="utf-8")
    return set(re.findall(r"(?<![\w-])([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)(?![\w*-])", text))


def test_the_pages_about_clouds_name_only_variables_that_exist():
    settings = {f"{PREFIX}{field.upper()}" for field in Settings.model_fields}
    composed = _names_in("docker-compose.yml") | _names_in("deploy/env.example")
    known = settings | composed | _names_in("Dockerfile")
    known |= _names_in("tests/providers/test_suite_for_accounts.py")
    # Of others: the credentials' chains, pip, and errors and quotas of the clouds.
    of_others = {
        "AWS_ENDPOINT_URL",
        "AWS_ROLE_ARN",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "GOOGLE_BASE_URL",
        "GOOGLE_SERVICE_ACCOUNT",
        "GPUS_ALL_REGIONS",
        "SSL_CERT_FILE",
    }
    google_says = {
        "IAM_PERMISSION_DENIED",
        "QUOTA_EXCEEDED",
        "RESOURCE_NOT_FOUND",
        "RESOURCE_NOT_READY",
        "RESOURCE_OPERATION_RATE_EXCEEDED",
        "SERVICE_DISABLED",
        "UNSUPPORTED_OPERATION",
        "ZONE_RESOURCE_POOL_EXHAUSTED",
    }
    for page in ("aws.md", "gcp.md", "deployment.md", "object-stores.md"):
        unknown = _names_in(f"docs/{page}") - known - of_others - google_says
        assert sorted(unknown) == [], f"docs/{page} names variables that nothing reads"
        text = (DOCS / page).read_text(encoding="utf-8")
        assert not re.search(r"\bEXTRAS=", text), f"docs/{page}: LOWTIDE_EXTRAS"


def test_the_pages_show_what_the_modules_print():
    for cloud in ("aws", "gcp"):
        module = (ROOT / f"deploy/{cloud}/outputs.tf").read_text(encoding="utf-8")
        printed = re.findall(r"^    ([A-Z_]+)=", module, re.MULTILINE)
        page = (DOCS / f"{cloud}.md").read_text(encoding="utf-8")
        [block] = re.findall(r"```\n(LOWTIDE_PROVIDERS=.*?)```", page, re.DOTALL)
        assert re.findall(r"^([A-Z_]+)=", block, re.MULTILINE) == printed
        for stage in ("rent", "boot", "register", "train", "checkpoint", "give back"):
            assert f"*{stage}*" in page, f"docs/{cloud}.md: stage {stage} of doctor --launch"


def test_the_first_jobs_of_the_pages_are_jobs():
    for cloud in ("aws", "gcp"):
        page = (DOCS / f"{cloud}.md").read_text(encoding="utf-8")
        [told] = re.findall(r"first\.yaml <<END\n(.*?)END", page, re.DOTALL)
        spec = parse_spec(yaml.safe_load(told))
        assert [one.provider for one in present(spec.infra)] == [cloud]


def test_every_whole_job_on_the_pages_is_a_job():
    jobs = 0
    for page in DOCS.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            told = yaml.safe_load(block)
            of_skypilot = "num_nodes" in told
            if of_skypilot or not {"trainer", "run"} & set(told):
                continue
            # The command line puts a digest in place of the folder before a spec is parsed.
            packed = {"workdir": f"sha256:{'0' * 64}"} if "workdir" in told else {}
            parse_spec({**told, **packed})
            jobs += 1
    assert jobs >= 10, "the jobs were not found"


def test_our_half_of_each_comparison_is_a_job():
    for product in ("skypilot", "sagemaker"):
        page = (DOCS / f"from-{product}.md").read_text(encoding="utf-8")
        [told] = re.findall(r"^Lowtide:\n\n```yaml\n(.*?)```", page, re.DOTALL | re.MULTILINE)
        # The command line puts a digest in place of the folder before a spec is parsed.
        spec = parse_spec({**yaml.safe_load(told), "workdir": f"sha256:{'0' * 64}"})
        assert (spec.name, spec.estimate is not None) == ("finetune", True)


def test_the_groups_files_of_the_back_test_have_the_jobs_that_the_page_counts(tmp_path: Path):
    page = (DOCS / "backtest.md").read_text(encoding="utf-8")
    traces = Path(app.adapters.providers.local.__file__).parent / "traces"
    path = tmp_path / "groups.json"
    jobs: list[int] = []
    for block in re.findall(r"^```json\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        path.write_text(json.dumps(json.loads(block)), encoding="utf-8")
        for setting in PoolSetting:
            plan = read_plan(path, setting, PlanOverrides())
            groups = [(one, read_trace(traces / one.file)) for one in plan.groups]
            jobs.append(sum(len([*cells_of(*group, plan, setting)]) for group in groups))
    assert jobs == [12, 4, 1_800, 140]


def test_every_relative_link_leads_to_a_file_and_a_heading():
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    links = [(page, link) for page in pages for link in _relative_links(page)]
    assert len(links) > 100, "the links were not found"
    for page, link in links:
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page.relative_to(ROOT)}: {link}"
        if anchor:
            assert anchor in _anchors(target), f"{page.relative_to(ROOT)}: {link}"


def test_every_file_that_the_guides_name_is_there():
    """A whole path leads to it from the root; a part of one is the end of a path."""
    paths = {file.name for file in source_files()}
    named = set()
    for guide in ("ARCHITECTURE.md", "CONTRIBUTING.md", "docs/notice-to-launch.md"):
        for name in re.findall(r"`([\w*]+(?:/[\w*]+)*(?:\.py|\.html)?)`", _prose(ROOT / guide)):
            if "/" in name or name.endswith((".py", ".html")):
                named.add((guide, name))
    assert len(named) > 80, "the files were not found"
    rooms = {path.rpartition("/")[0] for path in paths} | {*ROOMS, "docs"}
    missing = [
        f"{guide}: {name}"
        for guide, name in sorted(named)
        if not list(ROOT.glob(name))
        and not any(path.endswith(f"/{name}") for path in paths | rooms)
        and not list((ROOT / "app/web/templates").glob(name))
    ]
    assert missing == []


def test_every_field_of_a_job_is_described():
    """By its name, or after a name with the same section: `resources.cpus`, `.memory`."""
    page = (DOCS / "job-spec.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+)`", page))
    inner = set(re.findall(r"`(?:[a-z]+)?\.([a-z_]+)`", page))
    fields = {field.alias or name for name, field in JobSpec.model_fields.items()}
    sections: dict[str, type[BaseModel]] = {"resources": Resources, "checkpoint": Checkpoint}
    assert sorted(fields - named - set(sections)) == [], "fields missing in docs/job-spec.md"
    for section, model in sections.items():
        parts = {field.alias or name for name, field in model.model_fields.items()}
        assert sorted(parts - inner) == [], f"fields of {section} missing in docs/job-spec.md"


def _prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)


def _relative_links(page: Path) -> Iterator[str]:
    for link in re.findall(r"\]\(([^)\s]+)\)", _prose(page)):
        if not re.match(r"[a-z]+:", link):
            yield link


def _anchors(page: Path) -> set[str]:
    """As GitHub names headings, and what `id` names."""
    text = _prose(page)
    headings = re.findall(r"^#{1,6} +(.*?) *$", text, re.MULTILINE)
    words = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    slugs = {re.sub(r"[^\w\- ]", "", word).replace(" ", "-") for word in words}
    return slugs | set(re.findall(r'<a id="([^"]+)"', text))


def test_the_places_that_remedies_name_are_on_their_pages():
    named = {
        found
        for path in (ROOT / "app").rglob("*.py")
        if "docs/" in path.read_text(encoding="utf-8")
        for _, text in strings_of(path)
        for found in re.findall(r"docs/([a-z-]+\.md), (step \d|[A-Z][a-z ]+[a-z])", text)
    }
    assert len(named) > 5, "the remedies were not found"
    for page, place in named:
        text = (DOCS / page).read_text(encoding="utf-8")
        where = rf"\*\*{place[-1]}\. " if place.startswith("step") else rf"#+ {place}"
        assert re.search(f"^{where}", text, re.MULTILINE), f"docs/{page} has no {place!r}"


def test_the_pages_sign_in_before_they_try_a_launch():
    for cloud in ("aws", "gcp"):
        page = (DOCS / f"{cloud}.md").read_text(encoding="utf-8")
        assert page.index("lowtide login") < page.index("doctor --launch")


def test_the_remedy_for_quota_names_the_steps_that_ask_for_it():
    [named] = re.findall(
        r"\((docs/.*?)\)", refusal_failure(JobHistory({}, (), (), ()), "quota").remedy
    )
    steps = re.findall(r"docs/(\w+)\.md, step (\d)", named)
    assert [cloud for cloud, _ in steps] == ["aws", "gcp"]
    for cloud, step in steps:
        page = (DOCS / f"{cloud}.md").read_text(encoding="utf-8")
        assert f"**{step}. Ask for quota.**" in page
