"""The file-system seam: durable files on local disks, S3 and HDFS, and what is made of them."""
