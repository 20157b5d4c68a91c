"""Your own photos: which class, how sure, and which views were selected.

    python python/examples/own_photos.py FOLDER [MODEL]

Without a folder, images of the pocket dataset are used, and the embedded model answers.
"""

from __future__ import annotations

import sys
from pathlib import Path

import flatclip

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
model = flatclip.load(sys.argv[2] if len(sys.argv) > 2 else "pocket")
if folder is None:
    drawn = flatclip.Dataset("pocket:hard::12")
    images, classes = [drawn[i][0] for i in range(len(drawn))], drawn.classes
else:
    images = sorted(str(file) for file in folder.rglob("*") if file.suffix.lower() in {".jpg", ".jpeg", ".png", ".webp"})
    classes = sorted({Path(file).parent.name for file in images})

clf = flatclip.Classifier(model, classes, method="stss", views=32)
for image, answer in zip(images, clf.answer(images)):
    name = image if isinstance(image, str) else "drawn"
    print(f"{name}: {answer.label} {answer.confidence:.2f}, {len(answer.selected)} of {answer.views} views selected")

why = clf.explain(images[0])
why.save("views.png")
print(why, "- all of them in views.png")
