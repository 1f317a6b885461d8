"""Which function carries out which command, on every database."""

from __future__ import annotations

from typing import Any

from edgeq.ports import commands as c
from edgeq.ports import flow_commands as f
from edgeq.store import cycle, insert, operators, run_records, steps, system_sql, types_sql
from edgeq.store.writer import Executor

EXECUTORS: dict[type[c.Command[Any]], Executor] = {
    c.InsertJobs: insert.insert_jobs,
    c.Cycle: cycle.run_cycle,
    f.InsertBatch: insert.insert_batch,
    f.RecordStep: steps.record_step,
    f.LookUpSteps: steps.list_steps,
    f.RunInTransaction: steps.run_in_transaction,
    c.ExtendLocks: cycle.extend_locks,
    c.StartRun: run_records.start,
    c.RefreshRun: run_records.refresh,
    c.FinishRun: run_records.finish,
    c.ReleaseRun: run_records.release,
    c.LoseRun: run_records.lose_run,
    c.CancelJob: operators.cancel,
    c.RetryJob: operators.retry,
    c.ApproveJob: operators.approve,
    c.RejectJob: operators.reject,
    c.FailJob: operators.fail,
    c.ReleaseJob: operators.release,
    c.DeleteJob: operators.remove,
    c.UpdateJob: operators.edit,
    c.RegisterTypes: types_sql.register,
    c.CreateType: types_sql.create,
    c.ChangeType: types_sql.change,
    c.SetConfig: system_sql.set_config,
}
