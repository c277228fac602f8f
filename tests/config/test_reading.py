"""Commands that only read: which need no permission, and what passes for one of them."""

import os
import subprocess
from pathlib import Path

import pytest

from remoteclaw.config.permissions.reading import only_reads
from tests.support.canaries import COMMON
from tests.support.rows import for_each


@pytest.fixture
def work(directory: Path) -> Path:
    """A workspace with a repository, links that lead out of it, and oddly named files."""
    work = directory / "work"
    (work / "src").mkdir(parents=True)
    (directory / "files").mkdir()
    for name in ("a.txt", "src/a.py", "src/b.py", "src/b c.py", "odd/-exec", "plain/x"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).touch()
    for name in ("link", "7", "a\u00a0b", "a\u2028b", "linked/etc"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).symlink_to("/etc")
    subprocess.run(["git", "init", "-q", work], check=True)
    return work


def reads(command: str, work: Path, *, cwd: str = ".", path: str = "/usr/bin:/bin") -> bool:
    return only_reads(command, work / cwd, (work, work.parent / "files"), path)


@for_each(
    "command",
    [
        *COMMON,
        *("cat {files}/1-0/1-a.txt", "cat 'src/b c.py'", 'cat "src/b c.py"', "cat src/*.py"),
        *("ls *.txt", "cat src/?.py", "cat -- src/a.py", "cat - ", "grep -e x src/a.py"),
        *("grep /api/users src/a.py", "rg '(foo|bar);$' src", "grep -A3 -B 2 x src/a.py"),
        *("find . -size +10k -mtime -7", "find src ! -name '*.pyc'", "sort -t, -k 2 a.txt"),
        *("head -c 100 a.txt", "tail -n +5 a.txt", "cut -d, -f1 a.txt | uniq -c", "tr a b"),
        *("date", "date +%F", "echo 'a;b' | wc -c", "which git", "stat a.txt", "file a.txt"),
        *(
            "git log --format='%h %s' -n 3 -- src",
            "git show HEAD:src/a.py",
            "git diff HEAD~2..HEAD",
        ),
        *(
            "git --no-pager diff",
            "git log -S foo --since='2 days ago'",
            "git branch --show-current",
        ),
    ],
)
def test_reading_commands_in_the_workspace_are_known(work: Path, command: str) -> None:
    assert reads(command.format(files=work.parent / "files"), work)


@for_each(
    "command",
    [
        # Other programs, and what starts, writes or waits.
        *("", "rm a.txt", "python x.py", "awk 1 a.txt", "cat a.txt | tee b", "ls | xargs rm"),
        *("cat a.txt; rm b", "cat a.txt & rm b", "cat a.txt || rm b", "cat a.txt |& rm b"),
        *("cat a.txt && rm b", "cat a.txt\nrm b", "cat\ta.txt", "A=b cat a.txt", "! cat a.txt"),
        *("find . -delete", "find . -exec rm {{}} +", "find . -fprint x", "find . -ok rm x"),
        *("find -L . -name x", "find . -newer /etc/passwd", "find . -files0-from x", "ls -L"),
        *(
            "rg --pre ./evil.sh x",
            "rg --pre=./evil.sh x",
            "rg -L x",
            "rg -f /etc/passwd",
            "rg -z x",
        ),
        *("rg --hostname-bin=./x y", "rg --search-zip x", "rg --follow x", "rg -nL x"),
        *("grep -R x .", "grep -rR x .", "grep -f /etc/passwd a.txt", "grep --file=/etc/passwd x"),
        *("sort -o b a.txt", "sort --compress-program=./x a.txt", "sort -T /x a.txt", "uniq a b"),
        *("sed -i 1d a.txt", "sed -n '1e rm x' a.txt", "sed 'w x' a.txt", "sed -n 1p -i a.txt"),
        *("sed -n '/x/w y' a.txt", "tail -f a.txt", "tail -F a.txt", "tail --retry a.txt"),
        *("wc --files0-from=/etc/passwd", "du --files0-from=x", "du -L .", "file -f /etc/passwd"),
        *(
            "date 01010000",
            "date -s x",
            "date -f /etc/passwd",
            "tree -o x",
            "tree -l",
            "ls --hyperlink",
        ),
        # Files elsewhere.
        *("cat /etc/passwd", "cat ../secret", "ls /", "cat link/passwd", "cat linked/*/passwd"),
        *("head 7", "cat a\u00a0b", "cat a\u2028b", "cat src/../../secret", "cat ~/.ssh/id_rsa"),
        *(
            "cat ~root/x",
            "cat '~/x'",
            "rg x /etc",
            "rg --files /etc",
            "rg -e x /etc",
            "grep -e x /etc",
        ),
        *("grep -ex /etc/passwd", "grep -r x link/", "find / -name x", "find . /etc", "du /etc"),
        *("wc -l /etc/passwd a.txt", "sed -n 1p /etc/passwd", "cat < /etc/passwd", "cat a.txt >b"),
        *("cat =ls", "cat ^a", "cat /proc/self/environ", "cat /dev/tcp/x/1", "stat -L link"),
        # Words that a shell changes.
        *(
            "cat $HOME/x",
            "cat $(rm b)",
            "cat `rm b`",
            'cat "$(rm b)"',
            'cat "`rm b`"',
            "cat \\/etc",
        ),
        *(
            "cat {{a,/etc/passwd}}",
            "cat a#b",
            "cat #b",
            "cat <(rm b)",
            "(cat a.txt)",
            "cat *(e:x:)",
        ),
        *(
            "cat 'a",
            'cat "a',
            "cat 'a\\' b'",
            "cat **/passwd",
            "ls .*",
            "cat src/.?",
            "cat [ab].txt",
        ),
        *("cat /etc/pass*", "cat ../*", "cat linked/*", "cat */passwd"),
        *(
            "echo /etc/*",
            "grep /etc/pass* a.txt",
            "find . -name /etc/*",
            "grep -e /etc/pass* a.txt",
        ),
        *("cat odd/../*", "cat odd/*/../../../x", "rg odd /etc/*"),
        # Options in the place of a value, should a shell drop the pattern before it.
        "grep -e *.nope -e -f/etc/passwd a.txt",
        # git: what writes, starts programs, or reads elsewhere.
        *("git branch new", "git branch -D x", "git branch -m x", "git branch --edit-description"),
        *(
            "git diff --output=x",
            "git log --output=x",
            "git diff --ext-diff",
            "git show --textconv",
        ),
        *("git diff /etc/passwd a.txt", "git diff --no-index a.txt link/passwd", "git log -L1,2:a"),
        *("git log --show-signature", "git log --format=%G?", "git log --pretty=format:%GK"),
        *("git -C /etc log", "git -c core.pager=x log", "git --git-dir=/x log", "git -p log"),
        *("git grep -Ox y", "git fetch", "git stash list", "git x", "git", "git help log"),
        *("git diff -O/etc/passwd", "git status --help", "git show --open-files-in-pager=x"),
        "cat " + "a" * 20_000,
    ],
)
def test_other_commands_need_a_permission(work: Path, command: str) -> None:
    assert not reads(command.format(), work)


def test_paths_count_from_the_directory_of_the_command(work: Path) -> None:
    assert reads("cat ../a.txt", work, cwd="src")
    assert not reads("cat ../../secret", work, cwd="src")
    assert not reads("cat ../link/passwd", work, cwd="src")


def test_a_pattern_that_matches_a_name_like_an_option_is_not_known(work: Path) -> None:
    assert reads("cat plain/*", work)
    assert not reads("cat *", work, cwd="odd")


def test_a_program_of_the_workspace_is_not_the_known_one(work: Path) -> None:
    own = work / "bin"
    own.mkdir()
    for program in ("ls", "git"):
        (own / program).touch(0o755)
    (work.parent / "bin").symlink_to(own)

    assert reads("ls", work, path=f"/bin:{own}")
    for path in (f"{own}:/bin", f"{work.parent}/bin:/bin", "bin:/bin", ":/bin", "/bin:."):
        expected = path == "/bin:."  # the known one is found first
        assert reads("ls", work, path=path) == expected
        assert reads("git status", work, path=path) == expected


# -- settings of a repository ---------------------------------------------------------------------

READS_OF_GIT = ("git status", "git diff", "git log -p", "git show", "git branch")


def configure(work: Path, *setting: str) -> None:
    subprocess.run(["git", "-C", work, "config", *setting], check=True)


@for_each(
    "setting",
    [
        *(("core.fsmonitor", "./x"), ("diff.external", "./x"), ("diff.x.textconv", "./x")),
        *(("diff.x.command", "./x"), ("filter.x.clean", "./x"), ("filter.x.process", "./x")),
        *(("core.pager", "./x"), ("pager.log", "./x"), ("gpg.program", "./x")),
        *(("log.showSignature", "true"), ("core.sshCommand", "./x"), ("core.worktree", "/etc")),
        *(("remote.o.promisor", "true"), ("remote.o.uploadpack", "./x"), ("remote.o.vcs", "x")),
        *(("extensions.partialClone", "o"), ("include.path", "/etc/gitconfig")),
        *(("includeIf.gitdir:/.path", "x"), ("core.hooksPath", "hooks"), ("core.hooksPath", "~/x")),
        *(("core.alternateRefsCommand", "./x"), ("interactive.diffFilter", "./x")),
    ],
)
def test_a_repository_whose_settings_may_name_a_program_needs_a_permission(
    work: Path, setting: tuple[str, str]
) -> None:
    (work / "hooks").mkdir(exist_ok=True)
    (work / "hooks" / "post-index-change").touch()
    assert all(reads(command, work) for command in READS_OF_GIT)

    configure(work, *setting)

    assert not any(reads(command, work) for command in READS_OF_GIT)
    assert reads("ls", work)
    configure(work, "--unset", setting[0])


def test_ordinary_settings_of_a_repository_need_no_permission(work: Path) -> None:
    for setting in (
        *(("user.name", "Ada"), ("remote.origin.url", "https://example.org/x.git")),
        *(("branch.main.remote", "origin"), ("core.autocrlf", "input"), ("pull.rebase", "true")),
        *(("core.hooksPath", ".husky/_"), ("branch.main.description", "a # b")),
    ):
        configure(work, *setting)

    assert all(reads(command, work) for command in READS_OF_GIT)


def test_a_repository_elsewhere_or_in_another_form_needs_a_permission(work: Path) -> None:
    (work / "plain" / "HEAD").touch()
    (work / "plain" / "objects").mkdir()
    (work / "src" / ".git").write_text(f"gitdir: {work.parent}/other/.git\n")
    (work / "odd" / ".git").symlink_to(work / ".git")
    (work / "loose" / ".git").mkdir(parents=True)
    for cwd in ("plain", "src", "odd", "loose", ".git"):
        assert not reads("git status", work, cwd=cwd)
    (work / ".git" / "commondir").write_text("/etc\n")
    assert not reads("git status", work)
    (work / ".git").rename(work.parent / ".git")
    assert not reads("git status", work)


def test_a_hook_that_reading_starts_needs_a_permission(work: Path) -> None:
    (work / ".git" / "hooks" / "post-index-change").touch(0o755)

    assert not reads("git status", work)


def test_a_repository_with_submodules_needs_a_permission(work: Path) -> None:
    """Git reads a submodule with the settings that it finds there."""
    identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a", "GIT_COMMITTER_NAME": "a"}
    env = {**os.environ, **identity, "GIT_COMMITTER_EMAIL": "a"}
    inner = work / "plain"
    for arguments in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "x")):
        subprocess.run(["git", "-C", inner, *arguments], check=True, env=env)
    assert reads("git status", work)

    subprocess.run(["git", "-C", work, "add", "plain"], check=True, env=env, stderr=-3)

    assert not reads("git status", work)


def test_a_worktree_whose_repository_knows_it_needs_no_permission(directory: Path) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    main, work = directory / "main", directory / "work"
    for arguments in (
        ("init", "-q", main),
        ("-C", main, *identity, "commit", "-q", "--allow-empty", "-m", "x"),
        ("-C", main, "worktree", "add", "-q", work),
    ):
        subprocess.run(["git", *arguments], check=True)
    assert reads("git log", work)

    configure(main, "core.fsmonitor", "./x")

    assert not reads("git log", work)
