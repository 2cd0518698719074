"""The user's own images in folders: train_dir/<class>/…/*.jpg, unlabeled_dir/…/*.jpg, test_dir/<class>/…/*.jpg.

docs/images.md tells what becomes of images of other shapes and kinds.
"""

import concurrent.futures
import hashlib
import itertools
import os

from image.datasets import decoded, image_files
from utils import files

FLAGS = {"train": "train_dir", "unlabeled": "unlabeled_dir", "test": "test_dir"}


def open_source(config):
    splits = open_folders(config.train_dir, config.unlabeled_dir, config.test_dir)
    return decoded.open_decoded("folder", splits, config.data_dir, config.image_size, config.flip)


def open_folders(train_dir, unlabeled_dir="", test_dir=""):
    """Returns a dict from split to ImageFolder."""
    folders = dict(zip(FLAGS, (train_dir, unlabeled_dir, test_dir)))
    folders = {split: folder for split, folder in folders.items() if folder}
    for (split, folder), (other_split, other) in itertools.permutations(folders.items(), 2):
        if os.path.join(files.resolve(folder), "").startswith(os.path.join(files.resolve(other), "")):
            raise ValueError(
                f"{FLAGS[split]}={folder!r} lies in {FLAGS[other_split]}={other!r}: use folders apart. The images of "
                "train_dir are used as unlabelled images anyway."
            )
    if not train_dir:
        raise ValueError("train_dir is not given: expected a folder with a folder of images for each class.")
    return {
        split: ImageFolder(folder, FLAGS[split], labelled=split != "unlabeled") for split, folder in folders.items()
    }


class ImageFolder:
    """The image files below a folder, in sorted order; if labelled, in a folder for each class.

    Attributes: num_images; labels, the class of each image, or None; class_names; num_ignored, files that do not end
    like images; checksum, which changes when files change.
    """

    def __init__(self, folder, flag, labelled):
        if not files.is_folder(folder):
            raise ValueError(f"{flag}={folder!r} is no folder: expected images in it.")
        self.folder = folder
        self.class_names = _class_folders(folder, flag) if labelled else ()
        self.paths = image_files.find_images(folder)
        self.num_images = len(self.paths)
        self.labels = [os.path.relpath(path, folder).split(os.sep)[0] for path in self.paths] if labelled else None
        self.num_ignored = sum(1 for _ in image_files.list_files(folder)) - self.num_images
        if not self.paths:
            raise ValueError(f"{flag}={folder!r} has no image files ({', '.join(image_files.IMAGE_ENDINGS)}).")
        self.checksum = self._compute_checksum()

    def _compute_checksum(self):
        """From names, sizes and times: to read all files for it would take as long as to use them."""
        digest = hashlib.sha256()
        for path in self.paths:
            status = files.status(path) if files.exists(path) else None  # a broken link
            line = f"{os.path.relpath(path, self.folder)}\0{status}\0"
            digest.update(line.encode(errors="surrogateescape"))
        return digest.hexdigest()

    def name(self, position):
        return self.paths[position]

    def sizes(self):
        """(width, height) of each image whose file begins as it should."""
        with concurrent.futures.ThreadPoolExecutor() as executor:
            return [size for size in executor.map(image_files.read_size, self.paths) if size]

    def read(self, image_size, positions):
        """Yields the images at these positions, or for each the ValueError that tells why it cannot be read."""
        return image_files.read_each((self.paths[position] for position in positions), image_size)


def _class_folders(folder, flag):
    _, folders, names = next(files.walk(folder))
    outside = [name for name in names if image_files.is_image(name)]
    if outside:
        raise ValueError(
            f"{flag}={folder!r} has {len(outside)} images that lie in no class folder, such as {min(outside)}: "
            "move them into a folder with the name of their class, or into unlabeled_dir."
        )
    class_names = sorted(name for name in folders if name[0] != ".")
    wrong = [name for name in class_names if name.encode(errors="ignore").decode() != name]
    if wrong:
        raise ValueError(
            f"{flag}={folder!r} has the class {os.fsencode(wrong[0])}, which is not UTF-8: rename its folder."
        )
    return tuple(class_names)
