"""Gate of a run whose model a deletion withdraws or makes again: it moves in the transaction that takes the model's place."""

from dataclasses import dataclass, field, replace

import sqlalchemy as sa

from modyn_dagster.catalog.results.models import ModelRow, list_models
from modyn_dagster.catalog.results.promotions import gate_of, move_gate
from modyn_dagster.catalog.runs import RunRow, get_run, move_run, replace_champion
from modyn_dagster.evaluation.promotion.deletions import with_remade, without_withdrawn
from modyn_dagster.evaluation.promotion.state import GateState
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.promotion.evidence import BatchEvidence, RunModels
from modyn_dagster.pipeline.promotion.gate_walk import crown, record_changes, rules_of
from modyn_dagster.pipeline.promotion.predictions import GatePredictions


@dataclass(frozen=True, slots=True)
class GateAfterDeletion:
    """Gate of a run whose trigger loses its model or gets another one.

    Attributes:
        platform: the project.
        run: the trigger's.
        trigger: ordinal of the trigger.
        load_problems: of the models that may follow, as far as they were loaded before the transaction.
    """

    platform: Platform
    run: RunRow
    trigger: int
    load_problems: dict[str, str | None] = field(default_factory=dict)

    def load_heirs(self) -> None:
        """Load the models that may follow a withdrawn one before the transaction, which then does not wait for it."""
        if (rules := rules_of(self.platform.recorded_spec(self.run))) is None:
            return
        with self.platform.transaction() as conn:
            gate = gate_of(conn, self.run.id)
        without_withdrawn(rules.spec, GateState.of_json(gate.state), _evidence(self._models().without(self.trigger), gate.batch))

    def move(self, conn: sa.Connection, model: ModelRow | None) -> None:
        """Let gate, events and champion follow in the transaction that changes the model; does nothing for a run without a gate.

        The champion that follows a withdrawn one is named at once, and the tests that have counted predictions of a model that
        was made again begin anew. Runs that took the model over as their champion follow, too.

        Args:
            conn: the transaction, in which the rows of models are changed already.
            model: in the place of the old one; None where that is withdrawn.
        """
        run = get_run(conn, self.run.id, lock=True)
        # Another connection reads these rows: it sees the models of before, and the locked run gets no other one meanwhile.
        before = self._models()
        old, rules = before.hash_of(self.trigger), rules_of(self.platform.recorded_spec(run))
        if rules is None:
            replace_champion(conn, run, old)
            return
        models = before.without(self.trigger) if model is None else before.with_model(model)
        gate = gate_of(conn, run.id, lock=True)
        known, evidence = GateState.of_json(gate.state), _evidence(models, gate.batch)
        if model is None:
            state, changes = without_withdrawn(rules.spec, known, evidence)
        else:
            state, changes = with_remade(rules.spec, known, self.trigger, evidence)
        if state != known or changes:
            move_gate(conn, gate, run.title, batch=gate.batch, state=state.to_json())
            record_changes(conn, models, changes, batch=gate.batch, time=evidence.time)
        if state.seen >= 0:
            run = crown(conn, run, models, state)
        elif run.champion_model == old:
            # The first look makes the first model the champion.
            left = list_models(conn, run.id)
            run = move_run(conn, run, champion_model=left[0].hash if left else None)
        replace_champion(conn, run, old)

    def _models(self) -> RunModels:
        read = RunModels.read(self.platform, self.run, self.platform.view_of(self.run))
        return replace(read, load_problems=self.load_problems)


def _evidence(models: RunModels, batch: int) -> BatchEvidence:
    return BatchEvidence(models, GatePredictions(ahead=False), batch)
