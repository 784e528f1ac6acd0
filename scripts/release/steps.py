"""The steps of a release check. Each returns what it found or raises an error; commands write log files."""

import json
import os
import platform
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import facts

ROOT = Path(__file__).resolve().parent.parent.parent
TOOLS = ROOT / ".venv-dist/bin"
CRATES = ["unisono", "unisono-nn", "unisono-cli"]
ALL_BUT_BINDINGS = ["--workspace", "--exclude", "unisono-c", "--exclude", "unisono-python"]
CROSS = "aarch64-unknown-linux-gnu"


class Failure(Exception):
    """A step has failed."""


class LeftOut(Exception):
    """A step cannot be made here."""


@dataclass
class Release:
    """What is checked: with a tag, as it will be published; without, as it stands."""

    tag: str
    logs: Path

    def run(self, name: str, command: list[str], minutes: float = 30, **variables: str) -> str:
        """Runs a command with its output in a log file, and returns the output."""
        log = self.logs / f"{name}.log"
        # What is built once more is not debugged.
        plain = {
            "CARGO_PROFILE_DEV_DEBUG": "0",
            "CARGO_PROFILE_RELEASE_DEBUG": "0",
            "CARGO_NET_OFFLINE": "true",
        }
        environment = {**os.environ, **plain, **variables}
        with log.open("w") as output:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = process.wait(timeout=60 * minutes)
            except BaseException as error:
                # The command's own children, too.
                os.killpg(process.pid, 9)
                process.wait()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise Failure(f"ended after {minutes} minutes: {log.relative_to(ROOT)}") from None
                raise
        text = log.read_text(errors="replace")
        if status:
            last = next((line for line in reversed(text.splitlines()) if line.strip()), "no output")
            raise Failure(
                f"{' '.join(command)}: exit status {status}: {last.strip()} ({log.relative_to(ROOT)})"
            )
        return text

    def make(self, name: str, *arguments: str, minutes: float = 30) -> str:
        """Runs a target of the Makefile."""
        return self.run(name, ["make", "--no-print-directory", *arguments], minutes)


def printed(*command: str) -> str:
    """Returns what a short command prints; nothing if it is missing."""
    if not shutil.which(command[0]):
        return ""
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300).stdout


def no_problems(found: list[str]) -> None:
    """Fails with all problems."""
    if found:
        raise Failure("; ".join(found))


def versions(release: Release) -> str:
    """All files state the same version, and with a tag the changelog has it."""
    no_problems(facts.problems_of_versions(ROOT))
    if not release.tag:
        return (
            f"{facts.version_of(ROOT)} everywhere; TAG=v{facts.version_of(ROOT)} also compares the changelog"
        )
    no_problems(facts.problems_of_tag(ROOT, release.tag))
    changes = release.run("git", ["git", "status", "--porcelain"]).splitlines()
    no_problems([f"not committed: {line[3:]}" for line in changes])
    return f"{facts.version_of(ROOT)} everywhere, with its section in the changelog, all committed"


def addresses(release: Release) -> str:
    """The addresses that package indexes show are real."""
    found = facts.placeholders(ROOT)
    text = f"{facts.PLACEHOLDER} is a placeholder in {', '.join(found)}: write the project's own addresses"
    if found and release.tag:
        raise Failure(text)
    if found:
        raise LeftOut(text)
    return "no placeholder"


def workflows(release: Release) -> str:
    """Workflows, issue forms and the citation fit their schemas; the release workflow runs only make."""
    tool = str(TOOLS / "check-jsonschema")
    github = ROOT / ".github"
    groups = {
        "vendor.github-workflows": sorted((github / "workflows").glob("*.yml")),
        "vendor.github-issue-forms": sorted(
            path for path in (github / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"
        ),
        "vendor.github-issue-config": [github / "ISSUE_TEMPLATE/config.yml"],
        "vendor.citation-file-format": [ROOT / "CITATION.cff"],
    }
    for schema, files in groups.items():
        release.run(schema, [tool, "--builtin-schema", schema, *map(str, files)], minutes=2)
    text = (github / "workflows/release.yml").read_text()
    no_problems(
        [f"release.yml runs `{one}`, expected a target of make" for one in facts.other_commands(text)]
    )
    return f"{sum(map(len, groups.values()))} files fit their schemas"


def oldest_rust(release: Release) -> str:
    """No dependency needs a newer Rust than Cargo.toml states; clippy checks the code (`make check`)."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    command += ["--filter-platform", "x86_64-unknown-linux-gnu"]
    metadata = json.loads(printed(*command))
    rust = next(one["rust_version"] for one in metadata["packages"] if one["name"] == "unisono")
    no_problems(facts.newer_than(metadata, rust))
    text = f"no dependency states a newer Rust than {rust}"
    if f"\n{rust}" not in "\n" + printed("rustup", "toolchain", "list"):
        return f"{text}; not compiled with it, because that toolchain is not installed"
    release.run("oldest-rust", ["cargo", f"+{rust}", "check", "--locked", *ALL_BUT_BINDINGS])
    return f"{text}; compiled with it"


def lints(release: Release) -> str:
    """Formatting, lints, the repository's rules, licences of dependencies."""
    release.make("check", "check")
    return "formatting, clippy with incompatible_msrv, the repository's rules, licences of dependencies"


def crates(release: Release) -> str:
    """Each crate builds from its package alone, in the order in which they are published."""
    release.make("crates", "crates", *([] if release.tag else ["DIRTY=1"]))
    version = facts.version_of(ROOT)
    for crate in CRATES:
        with tarfile.open(ROOT / f"target/package/{crate}-{version}.crate") as archive:
            no_problems(facts.problems_of_crate(archive.getnames(), crate))
    return ", ".join(CRATES)


def crate_tests(release: Release) -> str:
    """The unit tests in a package compile without the rest of the repository."""
    version = facts.version_of(ROOT)
    manifest = ROOT / f"target/package/unisono-{version}/Cargo.toml"
    if not manifest.exists():
        raise LeftOut("the crates were not packed")
    command = ["cargo", "check", "--lib", "--profile", "test", "--manifest-path", str(manifest)]
    release.run("crate-tests", command, CARGO_TARGET_DIR=str(ROOT / "target/package-tests"))
    return "those of unisono"


def interface(release: Release) -> str:
    """No public item of Rust has changed incompatibly since the last release."""
    earlier = [tag for tag in printed("git", "tag", "--list", "v*").split() if tag != release.tag]
    if not earlier:
        raise LeftOut("nothing was released before")
    if not shutil.which("cargo-semver-checks"):
        raise LeftOut("cargo-semver-checks is missing: cargo install cargo-semver-checks --locked")
    last = max(earlier, key=lambda tag: [int(part) for part in tag[1:].split("-")[0].split(".")])
    command = ["cargo", "semver-checks", "--baseline-rev", last, *ALL_BUT_BINDINGS]
    release.run("semver", command)
    return f"compatible with {last}"


def documentation(release: Release) -> str:
    """The documentation of the crates, with broken links as errors."""
    release.make("docs", "docs")
    return "target/doc"


def site(release: Release) -> str:
    """The documentation site, with broken links as errors."""
    release.make("site", "site")
    return "target/site"


def library(release: Release) -> str:
    """Installs the library and the program, builds and runs an example with them, and removes them."""
    if not shutil.which("pkg-config"):
        raise LeftOut("pkg-config is missing: apt-get install pkg-config")
    prefix = ROOT / "target/release-check/prefix"
    shutil.rmtree(prefix, ignore_errors=True)
    release.make("install", "install", f"PREFIX={prefix}")
    source = ROOT / "examples/tables/linear_regression.c"
    flags = f"$(pkg-config --cflags --libs unisono) -Wl,-rpath,{prefix}/lib"
    program = prefix / "example"
    script = f"cc -std=c11 {source} {flags} -o {program} && {prefix}/bin/unisono run -n 2 -- {program}"
    release.run("example", ["sh", "-ec", script], minutes=5, PKG_CONFIG_PATH=f"{prefix}/lib/pkgconfig")
    program.unlink()
    pages = sorted(path.name for path in (prefix / "share/man/man1").iterdir())
    release.make("uninstall", "uninstall", f"PREFIX={prefix}")
    left = [str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()]
    no_problems([f"uninstall left {path}" for path in left])
    return f"installed, an example built and run, removed; {len(pages)} manual pages"


def rock(release: Release) -> str:
    """The rockspec of the Lua modules."""
    if not shutil.which("luarocks"):
        raise LeftOut("luarocks is missing: apt-get install luarocks")
    release.run("rock", ["luarocks", "lint", str(facts.rockspecs(ROOT)[0])], minutes=2)
    return facts.rockspecs(ROOT)[0].name


def wheel(release: Release) -> str:
    """The wheel of this machine and the source archive, both installed and run without a network."""
    release.make("dist", "dist", "FROM_SOURCE=1", "OFFLINE=.venv-dist", minutes=60)
    return ", ".join(sorted(path.name for path in (ROOT / "target/dist").iterdir()))


def other_wheel(release: Release) -> str:
    """The wheel for aarch64, cross-compiled."""
    if platform.machine() != "x86_64":
        raise LeftOut("this machine is not x86_64")
    if CROSS not in printed("rustup", "target", "list", "--installed").split():
        raise LeftOut(
            f"the Rust target is missing: rustup target add {CROSS}; the workflow has such a machine"
        )
    release.make("dist-aarch64", "dist", f"TARGET={CROSS}", minutes=60)
    names = ", ".join(path.name for path in (ROOT / f"target/dist-{CROSS}").iterdir())
    return f"{names}; its tags and machine were checked, but it was not run"


STEPS = {
    "versions": versions,
    "addresses": addresses,
    "workflows": workflows,
    "oldest Rust": oldest_rust,
    "rock": rock,
    "lints": lints,
    "crates": crates,
    "tests in crates": crate_tests,
    "Rust interface": interface,
    "Rust documentation": documentation,
    "C library": library,
    "wheel and sources": wheel,
    "wheel for aarch64": other_wheel,
    "site": site,
}
