"""Build the document of a run: verdicts with their evidence first, then the numbers, then where they come from."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from proveout.coordinator.report import csv_export
from proveout.coordinator.report import measurement_sections as measured
from proveout.coordinator.report.document import (
    Block,
    Cell,
    Details,
    Document,
    Download,
    Drawing,
    FileLinks,
    Outcome,
    Outcomes,
    Paragraph,
    Preformatted,
    Section,
    Table,
    Tiles,
    kept,
    notes,
)
from proveout.coordinator.report.figures.selection import figures, shown
from proveout.coordinator.report.figures.stage_figures import charts
from proveout.coordinator.report.figures.system_figures import topology
from proveout.coordinator.report.figures.timeline import Timeline, read_timeline
from proveout.coordinator.report.json_documents import timestamp
from proveout.coordinator.report.summary import (
    TONES,
    ComparisonRow,
    LaddersCompared,
    answer,
    began_nothing,
    brief_evidence,
    claims,
    end_sentence,
    headline,
    ladder_comparisons,
    lines,
    method,
    notes_of,
    resume_command,
)
from proveout.coordinator.report.tables import notices, validity_notes
from proveout.coordinator.results.fingerprint import (
    FactRow,
    Schema,
    TestedNode,
    fact_list,
    fingerprints,
    first_of_each,
    nodes,
    outline,
    schemas,
)
from proveout.coordinator.results.fingerprint import changes as schema_changes
from proveout.coordinator.results.published import Reproduction, growth_notes, reproductions
from proveout.coordinator.results.results import RunResults
from proveout.coordinator.storage.run_directory import Command, RunDirectory
from proveout.coordinator.verdict.checks import reads_points
from proveout.core.errors import NotInstalled, ProveoutError, one_line
from proveout.core.numbers import (
    centre,
    count_of,
    factor_cells,
    half_width,
    percent,
    quantity,
    threads,
    without_notes,
)
from proveout.proto.events import ValidityFinding, VerdictReached
from proveout.proto.tuning_state import tuned

OPEN_MAX = 2
"""Inner sections that a page shows open."""


def folded(section: Section, *, is_page: bool) -> Section:
    """The section with its inner sections folded, where a page has more than `OPEN_MAX` of them."""
    inner = [block for block in section.blocks if isinstance(block, Section)]
    if not is_page or len(inner) <= OPEN_MAX:
        return section
    blocks = tuple(
        Details(title=block.title, blocks=block.blocks) if isinstance(block, Section) else block
        for block in section.blocks
    )
    return replace(section, blocks=blocks)


def run_document(results: RunResults, *, run_dir: str = "") -> Document:
    """The summary of a run, finished or broken off; `run_dir` is named in it as the place of all recorded data."""
    return _document(results, None, run_dir)


def run_summary(results: RunResults, run_dir: str) -> Document:
    """The short form of the summary, which a run prints at its end: its last lines are the answers and, where it has
    been written, the page."""
    if began_nothing(results):
        return run_document(results, run_dir=run_dir).brief()
    page = Path(run_dir) / "report.html"
    closing = tuple(Paragraph(*line) for line in lines(results))
    closing += (Paragraph(f"Report: {page}"),) if page.is_file() else ()
    brief = run_document(results, run_dir=run_dir).brief(f"proveout report {shlex.quote(run_dir)} --text -")
    return replace(brief, closing=closing)


def page_document(results: RunResults, directory: RunDirectory) -> Document:
    """The document of the HTML page. SamplesUnreadable when a file of samples is damaged."""
    return _document(results, directory, "")


def _document(results: RunResults, directory: RunDirectory | None, run_dir: str) -> Document:
    run = results.run
    name = directory.name if directory else "proveout"
    told = answer(results)
    page, compared = directory is not None, tuple(map(_comparison, ladder_comparisons(results)))
    sections = (
        *([] if page else [_headline(results)]),
        *([] if began_nothing(results) else [_verdicts(results, page=page)]),
        _published(results),
        *([_figures(results, directory)] if directory else []),
        folded(Section(title="Comparison of ladders", blocks=compared, anchor="comparison"), is_page=page),
        folded(measured.ladders(results), is_page=page),
        measured.cost_section(results),
        measured.statement_section(results),
        measured.tools(results),
        measured.stage_values(results),
        *([] if page else [_charts(results)]),
        *measured.query_sets(results),
        *measured.searches(results),
        *measured.propagations(results),
        *([_topology(results), folded(_tested(results, page=True), is_page=True)] if page else []),
        *([_data(results), _outputs(directory)] if directory else []),
        _validity(results),
        _tuning(results),
        *([] if page else [_tested(results, page=False)]),
        _environment(results),
        *([_plan(results, directory)] if directory else []),
    )
    return Document(
        title=(run.title or run.name) if run else name,
        about=_about(results),
        status=Paragraph(*end_sentence(results, answered=told is not None)),
        answer=Paragraph(*told) if told else None,
        sections=kept(sections),
        files=run_dir,
        next_step=resume_command(results, run_dir) if run_dir and results.ended else "",
    )


def _about(results: RunResults) -> str:
    """`Run study-1 of plan study, started 2026-01-14T10:15:00Z, proveout 0.2.0`."""
    run = results.run
    if run is None:
        return ""
    parts = [f"Run {run.run_id} of plan {run.name}"]
    if when := timestamp(results.started_unix_s):
        parts.append(f"started {when}")
    if run.resumed:
        parts.append(f"resumed {run.resumed} ×")
    parts += [f"{name}={value}" for name, value in run.labels.items()]
    return ", ".join([*parts, f"proveout {run.version}"])


# ---- verdicts ----------------------------------------------------------------------------------------------------


def _headline(results: RunResults) -> Section:
    rows = tuple(
        (f"{one.label} ({one.about})" if one.about else one.label, Cell(one.value, one.tone), one.interval or "-")
        for one in headline(results)
    )
    table = Table(heads=("", "value", "interval"), rows=rows, layout="lrl")
    return Section(title="Result", blocks=(table,) if rows else (), anchor="result")


def _verdicts(results: RunResults, *, page: bool) -> Section:
    outcomes = Outcomes(tuple(_verdict(one, results) for one in results.verdicts))
    lacking = Paragraph("No verdict was reached.", "warn")
    if not results.plan.get("verdicts", True):
        lacking = Paragraph("The plan has no verdicts.")
    shown: list[Block] = [outcomes if outcomes.items else lacking]
    if numbers := headline(results):
        shown.insert(0, Tiles(numbers))
    if noted := notes_of(results.verdicts):
        shown.append(Paragraph(noted, "dim"))
    about = tuple(Paragraph(text, "dim") for text in method(results))
    whole = (Details(title="Method and error rates", blocks=about),) if page and about else about
    return Section(title="Verdicts", blocks=(*shown, *whole), anchor="verdicts", brief=tuple(shown))


def _verdict(verdict: VerdictReached, results: RunResults) -> Outcome:
    found = claims(verdict, results)
    remarks = ["warning only"] if verdict.severity == "warn" and verdict.outcome != "PASS" else []
    remarks += ["point estimate"] if found and reads_points(verdict.check) else []
    return Outcome(
        outcome=verdict.outcome,
        tone=TONES[verdict.outcome],
        title=verdict.title,
        id=verdict.id,
        remark=", ".join(remarks),
        evidence=without_notes(verdict.evidence),
        brief=brief_evidence(verdict.evidence, verdict.outcome, told=bool(found)),
        check=verdict.check,
        iterations=tuple(map(str, verdict.iterations)),
        claims=found,
    )


# ---- topology, comparisons, figures ------------------------------------------------------------------------------


def _topology(results: RunResults) -> Section:
    drawing = topology(results)
    return Section(title="Topology", blocks=(Drawing(drawing),) if drawing else ())


def _tested(results: RunResults, *, page: bool) -> Section:
    """Declared and measured facts of hosts and systems, and equipment; the page has the hardware of all hosts."""
    tested = nodes(results)
    equipment = [one for one in tested if one.is_equipment]
    others = [one for one in tested if not one.is_equipment and (one.rows or (page and one.hardware))]
    differences = tuple(
        f"{one.name}: {row.fact} is declared as {row.declared} and measured as {row.measured}."
        for one in others
        for row in one.rows
        if row.differs
    )
    nodes_of = (_tested_node(one, page=page) for one in others)
    blocks: tuple[Block, ...] = (
        *notes(differences, "warn"),
        *nodes_of,
        *([_equipment(equipment)] if equipment else []),
    )
    return Section(title="What was tested", blocks=blocks, anchor="tested")


def _tested_node(one: TestedNode, *, page: bool) -> Section:
    rows = (*one.rows, *one.hardware) if page else one.rows
    columns = [column for column in ("declared", "measured", "expected") if any(getattr(row, column) for row in rows)]
    lines = tuple((row.fact, *(_tested_cell(row, column) for column in columns)) for row in rows)
    table = Table(heads=("fact", *columns), rows=lines, layout="l" * (1 + len(columns)))
    return Section(title=f"{one.name} ({one.kind})", blocks=(table,))


def _equipment(equipment: Sequence[TestedNode]) -> Section:
    """Equipment in one table, because nothing of it is measured."""
    rows = tuple(
        (
            one.name,
            f"{one.kind}: {one.description}" if one.description else one.kind,
            ", ".join(one.connects) or "-",
            tuple(
                f"{row.fact}: {row.declared}{f' (expected: {row.expected})' if row.expected else ''}"
                for row in one.rows
            )
            or "-",
        )
        for one in equipment
    )
    table = Table(heads=("name", "equipment", "connected to", "declared facts"), rows=rows, layout="llll")
    return Section(title="Equipment without an agent", blocks=(table,))


def _tested_cell(row: FactRow, column: str) -> str | Cell:
    text: str = getattr(row, column)
    if column == "measured" and row.differs:
        return Cell(f"{text}, differs", "warn")
    if column == "expected" and text:
        return Cell(text if row.held else f"{text}: not so", "good" if row.held else "bad")
    return text or "-"


def _published(results: RunResults) -> Section:
    found = tuple(reproductions(results))
    heads = ("", "source", "published", "measured", "measured / published", "reproduced within")
    table = Table(heads=heads, rows=tuple(map(_reproduction, found)), layout="llrrrl")
    absent = notes(f"{one.title or one.id}: {one.missing}." for one in found if one.missing)
    return Section(title="Published numbers", blocks=(table, *absent) if found else (), anchor="published")


def _reproduction(one: Reproduction) -> tuple[str | Cell, ...]:
    measured = one.measured or {}
    within = "" if one.within is None else percent(one.within)
    reached = Cell(f"{within}: {one.outcome}", TONES[one.outcome]) if one.outcome else within
    times, ends = factor_cells(one.factor)
    return (
        one.title or one.id,
        one.source,
        quantity(one.published, one.metric),
        quantity(measured.get(centre(measured)), one.metric, half_width(measured)),
        times if ends == "-" else f"{times} ({ends})",
        reached,
    )


def _comparison(pair: LaddersCompared) -> Section:
    heads = ("", pair.base, pair.other, "factor", f"{pair.level} CI")
    table = Table(heads=heads, rows=tuple(map(_factor, pair.shortened)))
    meaning = f"A factor above 1: {pair.other} is better (more throughput, or a shorter response)."
    finding = (Paragraph(f"{pair.finding}.", "warn"),) if pair.finding else ()
    return Section(
        title=f"{pair.base} against {pair.other}, {threads(pair.threads)}",
        blocks=(table, *_others(pair, heads), Paragraph(meaning, "dim"), *finding),
    )


def _others(pair: LaddersCompared, heads: tuple[str, ...]) -> Iterator[Block]:
    """The number of transactions that a shortened comparison leaves out, and on the page all of them."""
    whole = tuple(row for row in pair.rows if row.transaction)
    shown = [row for row in pair.shortened if row.transaction]
    if len(shown) == len(whole):
        return
    between = len(whole) - len(shown)
    text = f"Of {len(whole)} transactions the lowest and the highest factors; those of {between} lie between them."
    yield Paragraph(text, "dim")
    yield Details(title=f"All {len(whole)} transactions", blocks=(Table(heads=heads, rows=tuple(map(_factor, whole))),))


def _factor(row: ComparisonRow) -> tuple[str | Cell, ...]:
    times, ends = factor_cells(row.factor)
    return row.label, *row.printed, Cell(times, row.tone), ends


def _figures(results: RunResults, directory: RunDirectory) -> Section:
    unread: tuple[str, ...] = ()
    try:
        timeline = read_timeline(results, directory.samples)
    except NotInstalled as fault:
        timeline, unread = Timeline(), (f"Figures over time are missing: {one_line(fault)}.",)
    drawn, missing = figures(results, timeline)
    absent = (*unread, *(f"The figure {name} is missing: {why}." for name, why in missing.items()))
    first, folded = shown(results, drawn)
    more = (Details(title=f"{subject}: {count_of(len(of), 'figure')}", blocks=(*of,)) for subject, of in folded.items())
    return Section(title="Figures", blocks=(*first, *more, *notes(absent)), anchor="figures")


def _charts(results: RunResults) -> Section:
    drawn, _ = charts(results)
    blocks = tuple(
        Table(
            title=one.title,
            heads=one.heads,
            rows=one.rows,
            layout="".join("lr"[head in ("mean", "median", "mean or median", "repeats")] for head in one.heads),
        )
        for one in drawn
    )
    return Section(title="Charts", blocks=blocks, anchor="charts", brief=())


# ---- data --------------------------------------------------------------------------------------------------------


def _data(results: RunResults) -> Section:
    about = (
        "One row for each rung, repeat and transaction: TPS, response times "
        "(min, average, p50, p90, p95, p99, max; µs) and outcomes."
    )
    name = results.run.run_id if results.run else "run"
    csv = Download(
        label="CSV",
        name=f"{name}.csv",
        media_type="text/csv;charset=utf-8",
        data=csv_export.to_csv(results).encode(),
    )
    files = [csv]
    with suppress(NotInstalled):  # the same rows
        kind = "application/vnd.apache.parquet"
        data = csv_export.to_parquet(results)
        files.append(Download(label="Parquet", name=f"{name}.parquet", media_type=kind, data=data))
    return Section(title="Data", blocks=(Paragraph(about), *files), anchor="data")


FILES_MAX = 500


def _outputs(directory: RunDirectory) -> Section:
    files = sorted(path for path in directory.outputs.glob("[!.]*") if path.is_file())
    about = "Outputs of programs and reports of databases: files of the run directory, where this page is."
    more = (Paragraph(f"and {len(files) - FILES_MAX} more in outputs/"),) if len(files) > FILES_MAX else ()
    links = FileLinks(paths=tuple((f"outputs/{path.name}", path.stat().st_size) for path in files[:FILES_MAX]))
    blocks = (Paragraph(about), links, *more) if files else ()
    return Section(title="Outputs and reports", blocks=blocks, anchor="outputs")


# ---- validity, tuning, environment -------------------------------------------------------------------------------


def _validity(results: RunResults) -> Section:
    findings = _findings(results)
    about = "All checks of every iteration; mix and logical-failures show whether the load was the workload."
    checks = (Details(title="All checks", blocks=(Paragraph(about), findings)),) if findings.rows else ()
    found = notes((*validity_notes(results), *growth_notes(results), *notices(results)))
    return Section(title="Validity", blocks=(*found, *checks), anchor="validity")


def _findings(results: RunResults) -> Table:
    """The checks of validity and conformance: how often each one held, and the evidence where it did not (else the
    last).
    """
    found: dict[tuple[str, str], list[ValidityFinding]] = {}
    for stage in results.stages.values():
        for item in stage.iterations:
            for finding in item.findings:
                found.setdefault((stage.id, finding.label), []).append(finding)
    lines = []
    for (stage_id, check), seen in found.items():
        broken, judged = [one for one in seen if not one.ok], sum(one.is_judged for one in seen)
        held = f"{judged - len(broken)} of {judged}" if judged else "not judged"
        held += f", {len(seen) - judged} not judged" if 0 < judged < len(seen) else ""
        lines.append((stage_id, check, held, (broken or seen)[-1].evidence))
    return Table(heads=("stage", "check", "held in", "evidence"), rows=tuple(lines), layout="llrl")


def _tuning(results: RunResults) -> Section:
    found = tuned(results.tunings)
    rows = tuple((one.host, f"{one.name} ({one.operation})", one.describe(ended=True), one.lines) for one in found)
    table = Table(heads=("host", "tuning", "state", "changes"), rows=rows, layout="llll")
    return Section(title="Tuning", blocks=(table,) if found else (), anchor="tuning")


def _schema(one: Schema) -> Details:
    return Details(
        title=f"Schema of {one.system} at {one.stage}",
        blocks=(
            Paragraph(one.digest, "dim"),
            Table(heads=("object", "definition"), rows=tuple(sorted(one.objects.items())), layout="ll"),
        ),
    )


def _environment(results: RunResults) -> Section:
    found = tuple(one for one in fingerprints(results) if not one.equipment)  # which is under "What was tested"
    rows = tuple((one.name, one.digest[7:19], outline(one)) for one in found)
    changes = tuple(f"{one.name} changed during the run: {change}" for one in found for change in one.drift)
    facts = (
        Details(
            title=f"All facts of {f'{one.system} on {one.host}' if one.system else one.name}",
            blocks=(
                Paragraph(f"{one.digest}{'' if one.whole else ' (looked at once only)'}", "dim"),
                Table(
                    heads=("fact", "value"),
                    rows=tuple((name, str(value)) for name, value in sorted(one.compared.items())),
                    layout="ll",
                ),
                *([Paragraph(f"Installed, not used: {fact_list(one.installed)}", "dim")] if one.installed else ()),
            ),
        )
        for one in found
    )
    read = schemas(results)
    rows += tuple((f"schema of {one.system}", one.digest[7:19], one.outline) for one in first_of_each(read))
    changes += tuple(f"schema of {one}" for one in schema_changes(results))
    table = Table(heads=("", "fingerprint", "environment"), rows=rows, layout="lll")
    changed = notes(changes, "warn")
    blocks: tuple[Block, ...] = (table, *changed, *facts, *map(_schema, first_of_each(read))) if found else ()
    return Section(title="Environment", blocks=blocks, anchor="environment", brief=changed)


# ---- the plan ----------------------------------------------------------------------------------------------------


def _plan(results: RunResults, directory: RunDirectory) -> Section:
    """The command that repeats the run, the digest, and the plan's files."""
    blocks: list[Block] = []
    command = _command(directory)
    if command is not None:
        where = "To repeat the run, in the folder plan/ of the run directory, or in any folder with these files:"
        blocks += [Paragraph(where), Preformatted(_command_line(command, directory.path / "plan"))]
    if results.run is not None:
        blocks.append(Paragraph(f"Compiled plan {results.run.digest}, proveout {results.run.version}", "dim"))
    files = list(_files(directory.path / "plan", Path(command.plan).name if command else ""))
    blocks += [
        Details(title=name, blocks=(Preformatted(text),), open=index == 0) for index, (name, text) in enumerate(files)
    ]
    if not files:
        blocks.append(Paragraph("The plan's files are not in the run directory."))
    return Section(title="Plan", blocks=tuple(blocks), anchor="plan")


def _command(directory: RunDirectory) -> Command | None:
    try:
        return directory.command()
    except ProveoutError:
        return None  # a journal outside its run directory still has a report


def _command_line(command: Command, folder: Path) -> str:
    words = ["proveout", "run", Path(command.plan).name]
    words += [word for name, value in command.overrides.items() for word in ("-p", f"{name}={value}")]
    words += [word for name, value in command.labels.items() for word in ("--label", f"{name}={value}")]
    if command.inventory:
        inventory = Path(command.inventory)
        copies = (command.place(inventory), Path(inventory.name))  # the second: of a run of release 0.2
        words += ["--inventory", str(next((one for one in copies if (folder / one).exists()), copies[0]))]
    words += [word for name in ("pki", "policy") if (path := command.files.get(name)) for word in (f"--{name}", path)]
    return shlex.join(words)


def _files(folder: Path, first: str) -> Iterator[tuple[str, str]]:
    """Name and text of the plan's files as they were, the plan itself first; files that are not text are left out."""
    compiled = folder / "plan.json"
    found = [path for path in folder.rglob("*") if path.is_file() and (path != compiled or first == path.name)]
    for path in sorted(found, key=lambda path: (path.relative_to(folder).as_posix() != first, path)):
        try:
            yield path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
