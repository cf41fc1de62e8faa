"""Topology files by `lorentz web`: only below its directory, checked by Lorentz itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from framework import lorentz, needs
from framework.build import REPO
from framework.web import Server

pytestmark = pytest.mark.patient

LAB = """\
# A comment.
name: {name}
topology:
  nodes: {{a: {{}}, b: {{}}}}
  links:
    - {{endpoints: ['a:eth0', 'b:eth0'], delay: {delay}}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "outside.yaml").write_text("secret")
    folder = tmp_path / "in"
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "lab.yaml").write_text(LAB.format(name="web-lab", delay="5ms"))
    (folder / "notes.yaml").write_text("a: 1\n")
    (folder / "old.imn").write_text("node n0 {\n    type pc\n}\n")
    (folder / ".hidden.yaml").write_text("x")
    (folder / "out.yaml").symlink_to("../outside.yaml")
    (folder / "up").symlink_to("..")
    return folder


@pytest.fixture
def server(folder: Path):
    with Server(folder) as server:
        yield server


@pytest.fixture
def browser(server: Server):
    return server.browser()


def test_files_are_listed_by_their_kind(browser):
    files = {one["path"]: one for one in browser.get("/api/v1/files").json()}
    assert set(files) == {"below/lab.yaml", "notes.yaml", "old.imn"}
    kinds = {path: one["kind"] for path, one in files.items()}
    assert kinds == {"below/lab.yaml": "topology", "notes.yaml": "other", "old.imn": "scenario"}
    assert files["below/lab.yaml"]["name"] == "web-lab" and not files["below/lab.yaml"]["running"]


@pytest.mark.parametrize(
    "path",
    ["../outside.yaml", "..%2foutside.yaml", "%2e%2e/outside.yaml", "out.yaml", "up/outside.yaml"]
    + ["%2fetc%2fpasswd", ".hidden.yaml", "below/../../outside.yaml", "below%00"],
)
def test_nothing_outside_is_read_or_written(browser, folder, path):
    read = browser.get(f"/api/v1/files/{path}")
    assert read.status in (400, 403, 404) and b"secret" not in read.body, read
    for condition in ({"If_None_Match": "*"}, {"If_Match": '"x"'}):
        assert browser.put(path, "changed", **condition).status in (400, 403, 404, 412)
    assert (folder.parent / "outside.yaml").read_text() == "secret"


def test_a_file_is_changed_only_from_the_version_that_was_read(browser, server, folder):
    read = browser.get("/api/v1/files/below/lab.yaml")
    text, etag = read.body.decode(), read.headers["etag"]
    assert text.startswith("# A comment.") and read.headers["content-type"].startswith("text/plain")
    changed = text.replace("5ms", "6ms")
    assert browser.put("below/lab.yaml", changed).status == 428
    assert browser.put("below/lab.yaml", changed, If_None_Match="*").status == 412
    written = browser.put("below/lab.yaml", changed, If_Match=etag)
    assert written.status == 200 and written.json()["etag"] != etag
    assert (folder / "below" / "lab.yaml").read_text() == changed
    assert browser.put("below/lab.yaml", text, If_Match=etag).status == 412
    assert server.logged("write")["path"] == "below/lab.yaml"
    assert browser.put("new.yaml", "x", If_None_Match="*").status == 200
    assert sorted(one.name for one in (folder / "below").iterdir()) == ["lab.yaml"]


def test_the_check_is_lorentzs_own(browser, tmp_path):
    wrong = LAB.format(name="web-lab", delay="fast")
    result = browser.post("/api/v1/check", {"text": wrong}).json()
    (error,) = result["errors"]
    file = tmp_path / "wrong.yaml"
    file.write_text(wrong)
    said = lorentz.call("up", "--check", str(file))
    place = f"{file}:{error['line']}:{error['column']}: {error['message']}"
    assert place in said.stderr
    good = browser.post("/api/v1/check", {"text": LAB.format(name="web-lab", delay="5ms")}).json()
    assert good == {"errors": [], "warnings": []}


def test_scenarios_are_imported_as_by_the_command_line(browser, folder):
    imported = browser.post("/api/v1/import", {"path": "old.imn"}).json()
    assert imported["yaml"] == lorentz.ok("import", str(folder / "old.imn"))
    text = (folder / "old.imn").read_text()
    again = browser.post("/api/v1/import", {"text": text, "format": "imn"}).json()
    assert "n0" in again["yaml"]
    for wrong in ({}, {"text": "x"}, {"text": "x", "format": "gns3"}, {"path": "../outside.yaml"}):
        assert browser.post("/api/v1/import", wrong).status == 400, wrong


def test_a_file_goes_up_and_down(browser, folder):
    needs.root()
    needs.feature("taps")
    name = "web-up"
    (folder / "up.yaml").write_text(LAB.format(name=name, delay="5ms"))
    try:
        done = browser.do("up", file="up.yaml", tdf="10")
        assert done["status"] == 0 and done["command"] == "lorentz up up.yaml --tdf 10", done
        files = {one["path"]: one for one in browser.get("/api/v1/files").json()}
        assert files["up.yaml"]["running"]
        assert browser.do("down", network=name)["status"] == 0
        assert name not in str(lorentz.json_of("inspect"))
    finally:
        lorentz.call("down", name)


def test_schema_and_interface_are_those_of_the_documentation(browser):
    for path, file in (("schema", "network.schema.json"), ("openapi.json", "openapi.json")):
        served = browser.get(f"/api/v1/{path}").json()
        assert served == json.loads((REPO / "docs" / file).read_text())
