"""Form for a plan's parameters: each is checked while it is typed, and the plan is compiled with them soon after.

Data flow: `services.Form` -> one `Asked` per parameter -> what was changed -> `HomeServices.plan` in a thread -> what
it would do, or what is wrong -> `Start`, which is what the screen is left with. The command that does the same is shown
below.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Mapping

from rich.highlighter import Highlighter
from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Button, Footer, Input, Select, Static

from proveout.core.numbers import clock, number, safe
from proveout.tui.colours import BAD, MUTED, coloured
from proveout.tui.home.model import PLAN_STATES
from proveout.tui.home.services import Field, Form, HomeServices, PlanCard, Start

DEBOUNCE_S = 0.3
PROBLEMS_MAX = 8
_TYPES = {"int": "whole number", "float": "number", "bool": "true or false"}


def bounds(field: Field) -> str:
    """`duration, 1s … 1m`; `whole numbers with commas, at least 4`; `text, one of a, b`."""
    if field.low and field.high:
        limits = f", {field.low} … {field.high}"
    else:
        limits = f", at least {field.low}" if field.low else f", at most {field.high}" if field.high else ""
    choices = f", one of {', '.join(field.choices)}" if field.choices else ""
    one = field.type.removeprefix("list[").removesuffix("]")
    words = _TYPES.get(one, one)
    return f"{words if one == field.type else f'{words}s with commas'}{limits}{choices}"


def command(plan: str, choice: Start) -> str:
    """The command line with the same effect."""
    words = ["proveout", "run", plan, *(w for name, text in choice.overrides.items() for w in ("-p", f"{name}={text}"))]
    words += ["-i", choice.inventory] if choice.inventory else []
    words += ["--pki", choice.pki] if choice.pki else []
    words += ["--policy", choice.policy] if choice.policy else []
    return shlex.join(words)


class Harmless(Highlighter):
    """A field holds the text of the plan; characters that a terminal would act on are drawn as �."""

    def highlight(self, text: Text) -> None:
        """Replace such characters in the drawn text."""
        text.plain = "".join(one if safe(one) == one else "�" for one in text.plain)


class Asked(Vertical):
    """One parameter: its name, a field, and below it the help or the problem."""

    class Answered(Message):
        """The text of the field has changed."""

    def __init__(self, field: Field, form: Form) -> None:
        super().__init__()
        self.field, self._form = field, form
        self.objection = ""

    def compose(self) -> ComposeResult:
        """Name and field in a line, a line of help."""
        with Horizontal():
            yield Static(Text(safe(self.field.name), style="bold", no_wrap=True, overflow="ellipsis"), classes="name")
            allowed = self.field.choices or (("true", "false") if self.field.type == "bool" else ())
            listed = self.field.type != "text" and self.field.type.startswith("list[")
            if allowed and not listed and (self.field.required or self.field.default in allowed):
                options = [(Text(safe(one)), one) for one in allowed]
                value = Select.NULL if self.field.required else self.field.default
                yield Select(options, value=value, allow_blank=self.field.required, compact=True)
            else:
                yield Input(self.field.default, compact=True, highlighter=Harmless())
        yield Static(classes="hint")

    def on_mount(self) -> None:
        """Show the help of the parameter."""
        self._say()

    @property
    def text(self) -> str:
        """The text of the field."""
        if self.query(Select):
            value = self.query_one(Select).value
            return "" if value is Select.NULL else str(value)
        return self.query_one(Input).value

    @property
    def changed(self) -> bool:
        """Whether the value differs from the default, so that the command line needs it."""
        return self.text != self.field.default or (self.field.required and bool(self.text))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Check it as it is typed."""
        event.stop()
        self._say()
        self.post_message(self.Answered())

    def on_select_changed(self, event: Select.Changed) -> None:
        """Check the selected value."""
        event.stop()
        self._say()
        self.post_message(self.Answered())

    def _say(self) -> None:
        if not self.text and (self.field.required or self.field.type != "text"):
            self.objection = "needs a value"
        else:
            self.objection = self._form.objection(self.field.name, self.text) if self.changed else ""
        text = coloured(f"✗ {safe(self.objection)}", BAD) if self.objection else self._help()
        self.query_one(".hint", Static).update(text)

    def _help(self) -> Text:
        text = coloured(safe(bounds(self.field)), MUTED)
        return text.append(f"  {safe(self.field.help)}") if self.field.help else text


class FormScreen(Screen[Start | None]):
    """Ask, check, start."""

    BINDINGS = [  # noqa: RUF012 - Textual's form
        Binding("ctrl+s", "start", "Start"),
        Binding("escape", "back", "Back"),
        Binding("ctrl+r", "defaults", "Defaults"),
    ]

    def __init__(self, services: HomeServices, plan: PlanCard, form: Form, debounce_s: float = DEBOUNCE_S) -> None:
        super().__init__()
        self._services, self._plan, self._form, self._debounce_s = services, plan, form, debounce_s
        self.card = plan

    def compose(self) -> ComposeResult:
        """Title, one block per parameter, inventory, the stages, the command."""
        yield Static(self._head(), id="form-top")
        with VerticalScroll(id="fields", can_focus=False):
            for field in self._form.fields:
                yield Asked(field, self._form)
            for name, hint in (
                ("inventory", "a file that supplies or replaces the topology; empty for the plan's own"),
                ("pki", "the directory with the coordinator's certificate, for agents that run already"),
                ("policy", "a file of this machine's owner that says what the plan may change here"),
            ):
                with Vertical(id=f"{name}-asked", classes="file"):
                    with Horizontal():
                        yield Static(Text(f"--{name}", style="bold"), classes="name")
                        yield Input(os.environ.get("PROVEOUT_PKI", "") if name == "pki" else "", compact=True, id=name)
                    yield Static(coloured(hint, MUTED), classes="hint")
        yield Static(id="message")
        yield Static(id="command")
        with Horizontal(id="buttons"):
            yield Button("Start (Ctrl+S)", id="start", variant="primary", compact=True)
            yield Button("Back (Esc)", id="back", compact=True)
        yield Footer()

    def _head(self) -> Text:
        text = Text(safe(self._plan.name), style="bold")
        return text.append(f"  {safe(self._plan.title)}", style="not bold")

    def on_mount(self) -> None:
        """Focus the first field."""
        self._ask_for_files()
        first = self.query("#fields Input, #fields Select").first()
        first.focus()
        self._check()

    def _ask_for_files(self) -> None:
        """Show the fields that the plan uses with its current values."""
        self.query_one("#pki-asked").display = self.card.remote
        self.query_one("#policy-asked").display = self.card.tunes_here

    def choice(self) -> Start:
        """The texts of the fields."""
        return Start(
            plan=self._plan.path,
            overrides=self._overrides(),
            inventory=self._file("inventory"),
            pki=self._file("pki") if self.card.remote else "",
            policy=self._file("policy") if self.card.tunes_here else "",
        )

    def _overrides(self) -> Mapping[str, str]:
        return {asked.field.name: asked.text for asked in self.query(Asked) if asked.changed}

    def _file(self, name: str) -> str:
        text = self.query_one(f"#{name}", Input).value.strip()
        return os.path.expanduser(text)  # noqa: PTH111 - "" stays ""

    def on_asked_answered(self) -> None:
        """Compile the plan with it after a pause in typing."""
        self._check()

    def on_input_changed(self) -> None:
        """The same for the inventory."""
        self._check()

    def on_input_submitted(self) -> None:
        """Enter goes to the next field."""
        self.focus_next()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """The buttons are the keys."""
        if event.button.id == "start":
            self.action_start()
        else:
            self.action_back()

    def _check(self) -> None:
        shown = command(self._plan.name, self.choice())
        self.query_one("#command", Static).update(coloured(f"$ {safe(shown)}", MUTED))
        self._compiled(start=False)

    @work(exclusive=True, group="check")
    async def _compiled(self, *, start: bool) -> None:
        """Compile with the texts of the fields; problems of single values are shown beside them."""
        wrong = [asked.field.name for asked in self.query(Asked) if asked.objection]
        if wrong:
            self._show(coloured(f"✗ not yet: {safe(', '.join(wrong))}", BAD), fine=False)
            return
        choice = self.choice()
        self._show(coloured("… being checked", MUTED), fine=False)
        await asyncio.sleep(0.0 if start else self._debounce_s)
        self.card = await asyncio.to_thread(self._services.plan, choice.plan, choice.overrides, choice.inventory)
        self._ask_for_files()
        fine = self.card.state == "fine"
        self._show(self._message(), fine=fine)
        if fine and start:
            self.dismiss(self.choice())

    def _message(self) -> Text:
        sign, style = PLAN_STATES[self.card.state]
        if self.card.state == "fine":
            text = f"{sign} about {clock(self.card.seconds)}, {number(float(self.card.iterations))} iterations"
            return coloured(text, style)
        lines = [safe(line) for line in self.card.lines]
        more = [f"… and {len(lines) - PROBLEMS_MAX} lines more"] if len(lines) > PROBLEMS_MAX else []
        return coloured(
            "\n".join(f"{sign} {line}" if not n else line for n, line in enumerate(lines[:PROBLEMS_MAX] + more)), style
        )

    def _show(self, text: Text, *, fine: bool) -> None:
        self.query_one("#message", Static).update(text)
        self.query_one("#start", Button).disabled = not fine

    def action_start(self) -> None:
        """Start the run when the plan compiles with the texts of the fields."""
        self._compiled(start=True)

    def action_back(self) -> None:
        """Leave without a run."""
        self.dismiss(None)

    def action_defaults(self) -> None:
        """Reset all fields to the plan's defaults."""
        for asked in self.query(Asked):
            if asked.query(Select):
                asked.query_one(Select).value = asked.field.default or Select.NULL
            else:
                asked.query_one(Input).value = asked.field.default
