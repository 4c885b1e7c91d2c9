"""check_tensorboard.py FOLDER: checks that TensorBoard reads the files that
tensorboard_test.cpp wrote there. Exits with 77 if tensorboard is missing."""
import pathlib
import sys

try:
    from tensorboard.backend.event_processing import event_accumulator
except ImportError:
    sys.exit(77)


def check_resumed(folder):
    """Checks runs of 3 epochs of 8 batches that were killed twice."""
    runs = sorted(folder.iterdir())
    assert len(runs) == 8, runs
    for run in runs:
        read = event_accumulator.EventAccumulator(
            str(run), size_guidance={"scalars": 0}
        )
        read.Reload()
        steps = [e.step for e in read.Scalars("batch/loss")]
        assert steps == list(range(24)), (run, steps)
        steps = [e.step for e in read.Scalars("epoch/valid_loss")]
        assert steps == [8, 16, 24], (run, steps)


def main(folder):
    read = event_accumulator.EventAccumulator(
        str(folder / "written"),
        size_guidance={"scalars": 0, "images": 0, "histograms": 0},
    )
    read.Reload()
    loss = [(e.step, e.value) for e in read.Scalars("loss")]
    assert loss == [(0, 1.0), (1, 0.5), (1 << 40, 0.25)], loss
    image = read.Images("picture")[0]
    assert (image.width, image.height) == (3, 2), image
    assert image.encoded_image_string[:4] == b"\x89PNG"
    h = read.Histograms("weights")[0].histogram_value
    assert (h.min, h.max, h.num, h.sum) == (-2, 3, 5, 2), h
    text = read.Tensors("notes/text_summary")[0]
    assert text.tensor_proto.string_val[0] == b"**hello**"
    metadata = read.SummaryMetadata("notes/text_summary")
    assert metadata.plugin_data.plugin_name == "text"
    check_resumed(folder / "resumed")


main(pathlib.Path(sys.argv[1]))
