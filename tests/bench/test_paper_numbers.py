"""The paper's tables: their shapes, their averages, and that each erratum is one."""

from __future__ import annotations

import pytest

from pmtrans.bench.paper import PaperRow, Table, paper_result, paper_row, table, table_names
from pmtrans.errors import UserError

# name: number, rows, columns (without averages), numbers printed (with averages)
SHAPES = {
    "office-home": (1, 14, 12, 182),
    "office-31": (2, 14, 6, 98),
    "visda-2017": (3, 14, 12, 182),
    "domainnet": (4, 9, 30, 387),
    "losses": (5, 4, 12, 52),
    "beta": (6, 3, 12, 39),
    "mixing": (7, 3, 12, 39),
    "appendix-office-31": (8, 18, 6, 126),
    "appendix-office-home": (9, 18, 12, 234),
    "appendix-visda-2017": (10, 17, 12, 221),
    "batch-size": (11, 12, 12, 156),
    "class-information": (12, 2, 12, 26),
    "attention": (None, 2, 0, 2),
    "equal-batch": (None, 2, 0, 2),
}
# Half a unit of the last printed digit for the average, and as much again for the cells it came from.
ROUNDING = 0.05 + 0.05 + 1e-9

ROWS = [pytest.param(table(name), row, id=f"{name}-{row.printed}") for name in SHAPES for row in table(name).rows]


def averages(row: PaperRow) -> dict[str, tuple[float, float]]:
    """Every average that a row states, with the mean of the cells it stands for."""
    stated = {"average": (row.stated_average, [cell for cell in row.cells.values() if cell is not None])}
    assert len(stated["average"][1]) in (0, len(row.cells))
    for margin, value in row.margins.items():
        source, target = margin.split("2")
        within = [
            cell
            for task, cell in row.cells.items()
            if cell is not None and source in ("*", task.split("2")[0]) and target in ("*", task.split("2")[1])
        ]
        assert len(within) == 5
        stated[margin] = (value, within)
    return {name: (value, sum(cells) / len(cells)) for name, (value, cells) in stated.items() if cells}


def test_every_table_of_the_paper_is_there_in_its_order() -> None:
    assert table_names() == tuple(SHAPES)


@pytest.mark.parametrize("name", SHAPES)
def test_a_table_has_the_shape_of_the_paper(name: str) -> None:
    loaded = table(name)
    numbers = sum(len(row.cells) + len(row.margins) + 1 for row in loaded.rows)
    assert (loaded.number, len(loaded.rows), len(loaded.tasks), numbers) == SHAPES[name]
    for row in loaded.rows:
        assert tuple(row.cells) == loaded.tasks
        assert all(cell is not None and 0 <= cell <= 100 for cell in row.cells.values())
    assert len({row.printed for row in loaded.rows}) == len(loaded.rows)


@pytest.mark.parametrize(("loaded", "row"), ROWS)
def test_the_averages_that_are_not_the_mean_of_their_cells_are_exactly_those_marked(
    loaded: Table, row: PaperRow
) -> None:
    wrong = {name: mean for name, (stated, mean) in averages(row).items() if abs(stated - mean) > ROUNDING}
    assert wrong.keys() == row.corrections.keys() - set(loaded.tasks)
    for name, mean in wrong.items():
        assert row.corrections[name] == round(mean, 1)
    assert bool(row.corrections) <= bool(row.errata)


def test_the_errata_are_these() -> None:
    found = {(name, row.printed) for name in table_names() for row in table(name).rows if row.errata}
    assert found == {
        ("office-home", "Swin-based"),
        ("appendix-office-home", "Swin-Base"),
        ("losses", "L_cls"),
        ("office-31", "ResNet-50"),
        ("office-31", "ViT-based"),
        ("appendix-office-31", "ResNet-50"),
        ("appendix-office-31", "ViT-Base"),
        ("visda-2017", "ResNet-50"),
        ("appendix-visda-2017", "ResNet-50"),
        ("domainnet", "SWD"),
    }


@pytest.mark.parametrize("name", ["office-31", "appendix-office-31"])
def test_only_the_resnet_row_of_office_31_has_its_columns_shuffled(name: str) -> None:
    # dslr and webcam show the same objects, and W2D is the easiest task for every method.
    for row in table(name).rows:
        easiest = max(row.cells, key=lambda task: row.cells[task] or 0.0)
        cells_are_marked = bool(set(row.corrections) & set(row.cells))
        assert cells_are_marked == (easiest != "W2D")
        if cells_are_marked:
            assert list(row.cells.values()) == [row.corrections[task] for task in sorted(row.cells)]


@pytest.mark.parametrize("name", ["visda-2017", "appendix-visda-2017"])
def test_the_mislabelled_resnet_row_of_visda_is_marked(name: str) -> None:
    row = paper_row(name, "source_only", "resnet101")
    assert row is not None
    assert row.printed == "ResNet-50"
    assert "ResNet-101" in (row.errata or "")


@pytest.mark.parametrize("benchmark", ["office-31", "office-home", "visda-2017"])
def test_the_appendix_repeats_the_lines_of_the_main_paper(benchmark: str) -> None:
    for row in table(benchmark).rows:
        again = paper_row(f"appendix-{benchmark}", row.method, row.backbone)
        assert again is not None
        assert (again.cells, again.stated_average) == (row.cells, row.stated_average)


@pytest.mark.parametrize(
    ("ablation", "variant", "backbone"),
    [
        ("losses", "L_cls + L_f + L_l", "swin"),
        ("beta", "learned", "swin"),
        ("mixing", "patchmix", "swin"),
        ("class-information", "without class information", "swin"),
        ("batch-size", "batch size 32", "swin"),
        ("batch-size", "batch size 32", "vit"),
        ("batch-size", "batch size 32", "deit"),
    ],
)
def test_the_full_method_has_the_same_figures_in_an_ablation_and_in_the_comparison(
    ablation: str, variant: str, backbone: str
) -> None:
    row = paper_row(ablation, variant, backbone)
    full = paper_row(table(ablation).benchmark, "pmtrans", backbone)
    assert row is not None
    assert full is not None
    assert row.cells == full.cells


def test_pmtrans_is_not_best_in_all_thirty_domainnet_tasks() -> None:
    rows = {row.method: row for row in table("domainnet").rows}
    ours = rows.pop("pmtrans").cells
    beaten = [
        (method, task)
        for method, row in rows.items()
        for task, cell in row.cells.items()
        if (cell or 0.0) >= (ours[task] or 0.0)
    ]
    assert beaten == [("SSRT", "rel2inf")]


@pytest.mark.parametrize(
    ("benchmark", "method", "backbone", "task", "expected"),
    [
        ("office-31", "pmtrans", "swin_base_patch4_window7_224.ms_in22k", "A2W", 99.5),
        ("office-31", "source_only", "deit_base_distilled_patch16_224.fb_in1k", "W2A", 79.8),
        ("office-home", "source-only", "vit", "average", 81.1),
        ("office-home", "CKB", "resnet50", "A2C", 54.7),  # in the appendix only
        ("visda-2017", "pmtrans", "vit", "person", 67.8),
        ("visda-2017", "pmtrans", "vit", "train2validation", 87.5),
        ("domainnet", "pmtrans", "swin", "clp2inf", 34.2),
        ("domainnet", "pmtrans", "swin", "skt2rel", 77.5),
        ("domainnet", "pmtrans", "vit", "clp2inf", None),  # Swin only
        ("office-31", "mcd", "swin", "A2W", None),
        ("office-31", "pmtrans", "swinv2_base_window8_256", "A2W", None),  # another family
        ("office-31", "pmtrans", "swin", "A2Z", None),
        ("my-benchmark", "pmtrans", "swin", "A2W", None),
    ],
)
def test_paper_result_finds_what_the_paper_reports_and_nothing_else(
    benchmark: str, method: str, backbone: str, task: str, expected: float | None
) -> None:
    assert paper_result(benchmark, method, backbone, task) == expected


def test_methods_carry_the_key_under_which_the_paper_cites_them() -> None:
    cited = {row.method: row.citation for name in table_names() for row in table(name).rows if row.citation}
    assert cited["FixBi"] == "NaJCH21"
    assert cited["ILA+CDAN"] == "SharmaKC21"
    swin = paper_row("office-31", "source_only", "swin")
    assert swin is not None
    assert swin.citation == "Liu2021SwinTH"
    rivals = {row.method for name in table_names() for row in table(name).rows} - {"pmtrans", "source_only"}
    assert rivals <= cited.keys()
    assert len(rivals) == 17


def test_an_unknown_table_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UserError, match="Did you mean 'office-home'"):
        table("office-hom")
