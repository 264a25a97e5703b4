"""All reports by name."""

from __future__ import annotations

from headrace.pipeline.reports import changes, churn, failures, latency, volume

STUDIES = {
    study.name: study
    for study in (changes.STUDY, churn.STUDY, volume.STUDY, failures.STUDY, latency.STUDY)
}
