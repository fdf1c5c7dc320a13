"""What can be deployed without a build: zips, a template that names them, the kubectl plugin, and the sums of all.

`make package` calls it when `sam build` is done. Whatever stands in an archive stands there in one order, with one time
and one mode, so that the same source gives the same bytes.
"""

import gzip
import io
import re
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUMS = "SHA256SUMS"
PLUGIN = "kubectl-evenkeel.tar.gz"
# Beside what is built: what the template's metadata names, how it is deployed, and what clusters have to allow.
BESIDE = ("README.md", "CHANGELOG.md", "samconfig.toml", "deploy/kubernetes")
_CODE = re.compile(r"^( +)(?:CodeUri|ContentUri): .*$", re.M)
_RESOURCE = re.compile(r"^  (\w+):(?: #.*)?$", re.M)
_BUILT_BY = re.compile(r"^ +Metadata: \{BuildMethod: .*\}\n", re.M)


def package(built: Path, target: Path, release_url: str) -> None:
    """``built``: what `sam build` has made; ``target``: a folder, made anew; ``release_url``: where it will be."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    template, parts = packaged((ROOT / "template.yaml").read_text(encoding="utf-8"))
    (target / "template.yaml").write_text(template, encoding="utf-8")
    for part in parts:
        _zip(built / part, target / f"{part}.zip")
    for name in BESIDE:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target / source.name)
    archive = plugin_archive()
    (target / PLUGIN).write_bytes(archive)
    manifest = (ROOT / "deploy" / "krew" / "evenkeel.yaml").read_text(encoding="utf-8")
    manifest = re.sub(r"(?m)^( +uri: ).*$", rf"\g<1>{release_url}/{PLUGIN}", manifest)
    manifest = re.sub(r"(?m)^( +sha256: ).*$", rf'\g<1>"{sha256(archive).hexdigest()}"', manifest)
    (target / "evenkeel.yaml").write_text(manifest, encoding="utf-8")
    sums = [f"{sha256(file.read_bytes()).hexdigest()}  {file.relative_to(target)}\n" for file in _files(target)]
    (target / SUMS).write_text("".join(sums), encoding="utf-8")


def packaged(template: str) -> tuple[str, list[str]]:
    """The template with zips in the place of folders, which nobody builds; and whose zips those are."""
    parts: list[str] = []

    def zipped(match: re.Match[str]) -> str:
        part = _RESOURCE.findall(template, 0, match.start())[-1]
        parts.append(part)
        return f"{match[0].partition(':')[0]}: {part}.zip"

    return _BUILT_BY.sub("", _CODE.sub(zipped, template)), parts


def plugin_archive() -> bytes:
    """The command line with its launcher and the lock of what it imports, as krew unpacks it."""
    krew, product, cli = ROOT / "deploy" / "krew", ROOT / "layers" / "evenkeel", ROOT / "cli"
    files = {
        "kubectl-evenkeel": krew / "kubectl-evenkeel",
        "cli.txt": ROOT / "requirements" / "cli.txt",
        **{str(file.relative_to(product)): file for file in _sources(product / "evenkeel")},
        **{str(file.relative_to(cli)): file for file in _sources(cli / "evenkeel_cli")},
    }
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, file in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = file.stat().st_size
            entry.mode = 0o755 if name == "kubectl-evenkeel" else 0o644
            with file.open("rb") as source:
                archive.addfile(entry, source)
    return gzip.compress(content.getvalue(), mtime=0)


def _zip(folder: Path, target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in _files(folder):
            entry = zipfile.ZipInfo(str(file.relative_to(folder)))  # of 1980, as every entry
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, file.read_bytes())


def _files(folder: Path) -> Iterator[Path]:
    return iter(sorted(path for path in folder.rglob("*") if path.is_file()))


def _sources(folder: Path) -> Iterator[Path]:
    """Yield the modules and data files of a package."""
    return (file for file in _files(folder) if file.parent.name != "__pycache__")


if __name__ == "__main__":
    package(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
